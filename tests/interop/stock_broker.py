"""Apache's own name server and broker on loopback: the reference that the programs are judged by.

A `JavaCluster` is one name server and either one plain broker or a DLedger group, from Maven
Central's jars. It lives in a directory of its own and takes free ports, so that several can run.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.free_ports import free_ports
from tests.processes import LOOPBACK, ChildProcess, is_listening
from tests.waiting import wait_until

from .builds import HERE, OPENED, maven_class_path
from .mqadmin import CLUSTER_NAME, LOGBACK

_START_SECONDS: Final = 90.0
_HEAP: Final = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")


@dataclass(slots=True, frozen=True, kw_only=True)
class JavaClusterPlan:
    """What to start; every field has a usable default."""

    # Release of broker, name server and tools on Maven Central.
    version: str = "4.9.3"
    # 0 starts one plain broker; otherwise that many members of one DLedger group.
    dledger_members: int = 0
    # Members that somebody else runs, at the ports that are kept for them.
    foreign_members: frozenset[int] = frozenset()
    # Further lines of every broker's properties file.
    broker_keys: Mapping[str, str] = field(default_factory=dict)
    # Further lines of the name server's properties file.
    namesrv_keys: Mapping[str, str] = field(default_factory=dict)
    # Further JVM options of name server and brokers, such as -Drocketmq.serialize.type=ROCKETMQ.
    jvm_options: tuple[str, ...] = ()
    # Where a member finds its peers, when not at their own ports: (from, to) -> port.
    peer_ports: Mapping[tuple[int, int], int] = field(default_factory=dict)
    # The address under which brokers find the name server, when not its own.
    namesrv_for_brokers: str | None = None
    # Port of a name server that runs already; then no stock one is started.
    foreign_namesrv_port: int | None = None


class JavaCluster:
    """A running stock cluster; use it in a `with` block, which always stops it."""

    def __init__(self, directory: Path, plan: JavaClusterPlan | None = None) -> None:
        self.directory = directory
        self.plan = plan or JavaClusterPlan()
        self.cluster_name = CLUSTER_NAME
        self.namesrv_port = self.plan.foreign_namesrv_port or free_ports(1)[0]
        member_count = max(1, self.plan.dledger_members)
        self.broker_ports = free_ports(member_count, spread=(-2, 0, 1))
        self.dledger_ports = free_ports(member_count, spread=(40,))
        self.dledger_ports = [port + 40 for port in self.dledger_ports]
        self._children: list[ChildProcess] = []
        # The processes of the members that were started here.
        self.broker_pids: dict[int, int] = {}
        self._class_path = ""

    @property
    def namesrv(self) -> str:
        """The name server's address as clients want it."""
        return f"{LOOPBACK}:{self.namesrv_port}"

    def start(self) -> None:
        """Start all processes and wait until a broker has registered."""
        self._class_path = maven_class_path(HERE / "java" / "broker-pom.xml", self.plan.version)
        conf = self.directory / "home" / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("broker", "namesrv"):
            (conf / f"logback_{name}.xml").write_text(LOGBACK)
        if self.plan.foreign_namesrv_port is None:
            self._start_namesrv(conf)
        for member in range(len(self.broker_ports)):
            if member not in self.plan.foreign_members:
                self._start_broker(conf, member)
        wait_until(
            lambda: self._has_registered_broker(),
            what="a stock broker registered with its name server",
            deadline_s=_START_SECONDS,
            detail=lambda: "\n".join(map(_last_words, self._children)),
        )

    def stop(self) -> None:
        """Kill every process; the directory stays for whoever made it."""
        while self._children:
            self._children.pop().kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_namesrv(self, conf: Path) -> None:
        path = self._write_properties(
            "namesrv.conf",
            {
                "listenPort": str(self.namesrv_port),
                "kvConfigPath": str(self.directory / "kvConfig.json"),
                "rocketmqHome": str(conf.parent),
                **self.plan.namesrv_keys,
            },
        )
        self._spawn("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", path)
        wait_until(
            lambda: is_listening(self.namesrv_port),
            what="the stock name server",
            deadline_s=_START_SECONDS,
            detail=lambda: _last_words(self._children[-1]),
        )

    def _start_broker(self, conf: Path, member: int) -> None:
        store = self.directory / f"store-{member}"
        port = self.broker_ports[member]
        keys = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": "stock",
            "brokerId": "0",
            "brokerIP1": LOOPBACK,
            "namesrvAddr": self.plan.namesrv_for_brokers or self.namesrv,
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mappedFileSizeCommitLog": str(256 * 1024 * 1024),
            "mappedFileSizeConsumeQueue": str(20 * 300000),
            "maxIndexNum": "100000",
            "maxHashSlotNum": "50000",
            # A loaded test machine is no reason to refuse a send.
            "waitTimeMillsInSendQueue": "10000",
            "osPageCacheBusyTimeOutMills": "10000",
            "diskMaxUsedSpaceRatio": "95",
            "rocketmqHome": str(conf.parent),
        }
        if self.plan.dledger_members:
            keys |= self.dledger_keys(member)
        keys |= self.plan.broker_keys
        path = self._write_properties(f"broker-{member}.conf", keys)
        self._spawn(f"broker-{member}", "org.apache.rocketmq.broker.BrokerStartup", path)
        self.broker_pids[member] = self._children[-1].pid

    def dledger_keys(self, member: int) -> dict[str, str]:
        """Return what a member's properties file says of the group."""
        peers = []
        for peer, port in enumerate(self.dledger_ports):
            peers.append(f"n{peer}-{LOOPBACK}:{self.plan.peer_ports.get((member, peer), port)}")
        return {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "stock",
            "dLegerPeers": ";".join(peers),
            "dLegerSelfId": f"n{member}",
            "sendMessageThreadPoolNums": "4",
        }

    def _write_properties(self, name: str, keys: Mapping[str, str]) -> Path:
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        return path

    def _spawn(self, name: str, main_class: str, properties: Path) -> None:
        self._children.append(
            ChildProcess(
                self._java(main_class, "-c", str(properties)),
                self.directory / f"{name}.log",
                {"ROCKETMQ_HOME": str(self.directory / "home")},
                folder=self.directory,
            )
        )

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        home = self.directory / "home"
        return [
            "java", *_HEAP, *OPENED, f"-Drocketmq.home.dir={home}",
            f"-Duser.home={self.directory}", *self.plan.jvm_options,
            "-cp", self._class_path, main_class, *arguments,
        ]  # fmt: skip

    def _has_registered_broker(self) -> bool:
        dead = [child for child in self._children if not child.is_running]
        if dead:
            raise AssertionError(f"a process ended at once:\n{_last_words(dead[0])}")
        return any(is_listening(port) for port in self.broker_ports) and self._route_answers()

    def _route_answers(self) -> bool:
        """Ask the name server for the route of TBW102; a master must be in it."""
        head = b'{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA",'
        head += b'"opaque":1,"serializeTypeCurrentRPC":"JSON","version":399}'
        frame = (len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head
        try:
            with socket.create_connection((LOOPBACK, self.namesrv_port), timeout=2) as link:
                link.settimeout(2)
                link.sendall(frame)
                answer = link.recv(65536)
        except TimeoutError:
            # A loaded machine; the caller asks again.
            return False
        return b"brokerAddrs" in answer and b"{0:" in answer.replace(b'"0"', b"0")


def _last_words(child: ChildProcess) -> str:
    return child.log_text()[-4000:]
