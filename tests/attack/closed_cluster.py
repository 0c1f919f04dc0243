"""A closed cluster of real processes, and its programs as targets of floods.

What `ledgermq secure init` makes: three members with accounts, TLS and the secret of the group, a
name server, and a console beside them. Two accounts are at work: the example application, which
behaves well, and a flooder, which may use every topic and group and is no admin.
"""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from ledgermq.client import load_client_tls
from ledgermq.protocol.signature import Credentials
from tests.attack.bystander import Way, credentials
from tests.e2e.wire_client import WireClient, request
from tests.free_ports import free_first_port, free_ports
from tests.processes import LOOPBACK, SMALL_STORE, LiveProgram, Programs, run_ledgermq
from tests.waiting import wait_until

MEMBERS: Final = ("n0", "n1", "n2")
NAME_SERVER: Final = "namesrv-0"
CONSOLE: Final = "console"
# What the example account may use.
TOPIC: Final = "orders"
_FLOODER: Final = Credentials(access_key="flooder", secret_key="secret-of-the-flooder")
_FLOODER_RULES: Final = """- accessKey: flooder
  secretKey: secret-of-the-flooder
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
# All that connect here have one address; sends wait for no disk.
_MEMBER_SETTINGS: Final = (
    "flushDiskType=ASYNC_FLUSH",
    "enablePropertyFilter=true",
    "maxConnectionsPerAddress=5000",
    "maxNewConnectionsPerAddress=5000",
    "receiveBudgetBytes=67108864",
)
_SERVER_SETTINGS: Final = ("serverConnectionsPerAddressMax=5000",)
_WAIT_S: Final = 120.0


class ClosedCluster(Programs):
    """The programs, from `with` to its end; `leader` is the name of the member that serves."""

    def __init__(self, folder: Path) -> None:
        """Makes the files and starts all."""
        super().__init__()
        self._folder = folder
        self.root = folder / "closed"
        base = free_first_port()
        self.name_server = f"{LOOPBACK}:{base + 5}"
        peers = ";".join(
            f"{name}-{LOOPBACK}:{base + 10 * number + 30_000}"
            for number, name in enumerate(MEMBERS)
        )
        words = ("--members", peers, "--name-servers", self.name_server)
        made = run_ledgermq("secure", "init", self.root, *words)
        assert made.returncode == 0, made.stderr
        for name in (NAME_SERVER, *MEMBERS):
            with open(self.root / name / "plain_acl.yml", "a") as rules:
                rules.write(_FLOODER_RULES)
        self.http = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
        self.leader = ""

    def start(self) -> None:
        """Starts all programs and waits for a leader that the name server knows."""
        self._start(NAME_SERVER, "namesrv", "-c", self._conf(NAME_SERVER, "namesrv"),
                    *_SERVER_SETTINGS)  # fmt: skip
        for name in MEMBERS:
            settings = (*SMALL_STORE, *_MEMBER_SETTINGS, f"httpPort={self.http[name]}")
            self._start(name, "broker", "-c", self._conf(name, "broker"), *settings)
        tls = self.root / "operator" / "tls.properties"
        self._start(
            CONSOLE, "console", "-n", self.name_server, "--listen", f"{LOOPBACK}:0",
            "--tls-config", tls,
        )  # fmt: skip
        self.leader = wait_until(self._find_leader, what="a leader", deadline_s=_WAIT_S)
        wait_until(
            lambda: self.programs[CONSOLE].status.get("url"), what="console", deadline_s=_WAIT_S
        )

    def _find_leader(self) -> str:
        found = [
            name
            for name in MEMBERS
            if self.programs[name].status.get("serving")
            and self.programs[name].status.get("name_servers")
        ]
        return found[0] if len(found) == 1 else ""

    def _conf(self, name: str, kind: str) -> Path:
        return self.root / name / f"{kind}.conf"

    def _start(self, name: str, kind: str, *words: object) -> None:
        self.programs[name] = LiveProgram([kind, "--json", *words], self._folder / f"{name}.log")

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that a send waits for."""
        return tuple(self.programs[name].pid for name in MEMBERS)

    def file(self, who: str, name: str) -> Path:
        """A file of an account: tools.yml or tls.properties."""
        return self.root / who / name


class ClosedTarget:
    """One port of the cluster, and what a well-behaved client asks there.

    Attributes:
        address: of the port.
        program: that listens there.
        tls: what the flooder connects with; None where the port has no TLS.
    """

    def __init__(
        self, cluster: ClosedCluster, name: str, address: str, *, is_http: bool = False
    ) -> None:
        self._cluster = cluster
        self.address = address
        self.program = cluster.programs[name]
        tls_file = cluster.file("application", "tls.properties")
        self.tls: ssl.SSLContext | None = None if is_http else load_client_tls(str(tls_file))

    def connect(self, *, is_admin: bool = False) -> WireClient:
        """Opens a connection of the flooder, or of the operator."""
        who = credentials(self._cluster.file("operator", "tools.yml")) if is_admin else _FLOODER
        return WireClient(self.address, timeout_s=120, who=who, tls=self.tls)

    def open(self) -> Any:
        """Opens a connection for bytes."""
        return WireClient(self.address, timeout_s=120, tls=self.tls).detach()

    def request(
        self,
        code: int,
        fields: dict[str, Any],
        body: bytes = b"",
        *,
        opaque: int = 1,
        flag: int = 0,
    ) -> bytes:
        """Returns the bytes of a request that the flooder signed."""
        texts = {name: str(value) for name, value in fields.items()}
        signed = _FLOODER.signed(texts, body, code)
        return request(code, signed, body, opaque=opaque, flag=flag)


def sends_beside(cluster: ClosedCluster, first: int) -> Way:
    """The application sends to the leader, from message `first` on."""
    return Way(
        address=cluster.programs[cluster.leader].address,
        pids=cluster.pids,
        topic=TOPIC,
        first=first,
        tls_file=str(cluster.file("application", "tls.properties")),
        keys_file=str(cluster.file("application", "tools.yml")),
    )


def routes_beside(cluster: ClosedCluster, first: int) -> Way:
    """The application asks the name server where its topic is."""
    return Way(
        address=cluster.name_server,
        pids=(cluster.programs[NAME_SERVER].pid,),
        kind="route",
        topic=TOPIC,
        first=first,
        tls_file=str(cluster.file("application", "tls.properties")),
        keys_file=str(cluster.file("application", "tools.yml")),
    )


def probes_beside(cluster: ClosedCluster, first: int) -> Way:
    """An orchestrator asks the leader whether it lives."""
    address = f"{LOOPBACK}:{cluster.http[cluster.leader]}"
    pid = cluster.programs[cluster.leader].pid
    return Way(address=address, pids=(pid,), kind="page", first=first)


def pages_beside(cluster: ClosedCluster, first: int) -> Way:
    """A browser asks the console who is signed in."""
    program = cluster.programs[CONSOLE]
    address = str(program.status["url"]).partition("//")[2].rstrip("/")
    return Way(
        address=address, pids=(program.pid,), kind="page", page="/api/v1/session", first=first
    )


def enter(stack: ExitStack, folder: Path) -> ClosedCluster:
    """Starts a cluster that ends with the stack."""
    cluster = stack.enter_context(ClosedCluster(folder))
    cluster.start()
    return cluster
