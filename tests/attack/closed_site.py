"""Programs with accounts, TLS and a secret, and what a victim keeps in them.

A name server, a broker with a ledger whose ledger port speaks without TLS and one whose speaks by
it, a master and its slave. Names, bodies, keys and ids of the victim are words that stand nowhere
else: who is told one of them was told too much.
"""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from ledgermq.client import load_client_tls
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_broker import ask, beat
from tests.e2e.plain_pair import PlainBroker
from tests.e2e.wire_client import WireClient, send_fields
from tests.fault.closed_ports import LEDGER, ports_of
from tests.processes import LOOPBACK, LiveProgram, broker, run_ledgermq
from tests.waiting import wait_until

ROOT: Final = Credentials(access_key="root-app", secret_key="secret-of-root")
VICTIM: Final = Credentials(access_key="victim-app", secret_key="canary-secret-of-victim")
THIEF: Final = Credentials(access_key="thief-app", secret_key="secret-of-thief")
# Of the victim, and known to the askers, who name them in requests.
TOPIC, GROUP = "victim-topic", "victim-group"
VICTIM_MARK: Final = b"victim-"
# Of the victim, and named by nobody: all that begins so. Who is told one was told too much.
HIDDEN_TOPIC, HIDDEN_GROUP, CLIENT = "canary-topic", "canary-group", "canary-client"
CANARY: Final = b"canary-"
_ACCOUNTS: Final = """
accounts:
- {accessKey: root-app, secretKey: secret-of-root, admin: true}
- accessKey: victim-app
  secretKey: canary-secret-of-victim
  brokerNames: ["*"]
  topicPerms: [victim-topic=PUB|SUB, canary-topic=PUB|SUB]
  groupPerms: [victim-group=SUB, canary-group=SUB]
- accessKey: thief-app
  secretKey: secret-of-thief
  topicPerms: [bait=PUB|SUB]
  groupPerms: [bait-readers=SUB]
"""
_SECRET: Final = "canary-secret-of-the-group, 32 bytes or more"


class Port(NamedTuple):
    program: str
    kind: str
    number: int
    # None: without TLS.
    tls: ssl.SSLContext | None


class Site:
    """The programs and their ports; `everything` is what an admin sees."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.programs: dict[str, LiveProgram] = {}
        self._stack = stack
        # Connections of the victim, whose tables are full then.
        self._members: list[WireClient] = []
        made = run_ledgermq(
            "secure", "init", folder / "files", "--members", f"n0-{LOOPBACK}:40911",
            "--name-servers", f"{LOOPBACK}:9876",
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        files = folder / "files"
        self.tls = load_client_tls(str(files / "application" / "tls.properties"))
        rules = _private(folder / "plain_acl.yml", _ACCOUNTS)
        closed = ("aclEnable=true", f"aclFile={rules}", "tls.server.mode=enforcing")
        at_names = (*closed, f"tls.config.file={files / 'namesrv-0' / 'tls.properties'}")
        self._start("names", LiveProgram(
            ("namesrv", "--json", "-p", "0", f"bindAddress={LOOPBACK}", *at_names,
             f"kvConfigPath={folder / 'kv.json'}", "routeNeedsAccount=true"), folder / "names.log",
        ))  # fmt: skip
        address = self.programs["names"].wait_until("address").address
        tls_file = files / "n0" / "tls.properties"
        group_secret = _private(folder / "group.secret", _SECRET)
        members = (
            *closed, f"tls.config.file={tls_file}", "tls.enable=true",
            f"dLegerGroupSecretFile={group_secret}", f"namesrvAccessKey={VICTIM.access_key}",
            f"namesrvSecretKeyFile={_private(folder / 'own.secret', VICTIM.secret_key)}",
            "auditLogFile=",
        )  # fmt: skip
        self._start("ledger", broker(
            folder, *members, "vipChannelEnable=true", namesrv=address, name="ledger",
        ))  # fmt: skip
        self._start("sealed", broker(
            folder, *members, f"tls.ledger.config.file={tls_file}", namesrv=address,
            name="sealed", log="sealed.log",
        ))  # fmt: skip
        pair = (*members, f"tls.ledger.config.file={tls_file}")
        for role in ("ASYNC_MASTER", "SLAVE"):
            self._start(role, PlainBroker(folder, address, role, *pair).start())
        for name in ("ledger", "sealed", "ASYNC_MASTER"):
            self._fill(self.programs[name].wait_until_serving())
        self.programs["SLAVE"].wait_until("address")
        self._fill_names(address)
        wait_until(self._is_slave_in_step, what="the slave's copy", deadline_s=90.0)

    def _start(self, name: str, program: LiveProgram) -> None:
        self.programs[name] = self._stack.enter_context(program)

    def _fill(self, program: LiveProgram) -> None:
        """A message, a member and an offset of the victim, and a topic of the thief."""
        with WireClient(program.address, tls=self.tls) as client:
            for who, topic in ((VICTIM, TOPIC), (VICTIM, HIDDEN_TOPIC), (THIEF, "bait")):
                kept = "KEYS\x01canary-key\x02TAGS\x01canary-tag" if who is VICTIM else ""
                body = b"canary-body" if who is VICTIM else b"bait"
                fields = send_fields(topic, 0, properties=kept)
                sent = ask(client, who, RequestCode.SEND_MESSAGE, fields, body)
                # A master says when no slave has it.
                assert sent.code in (0, 11), sent.remark
            member = self._stack.enter_context(WireClient(program.address, tls=self.tls))
            self._members.append(member)
            self.beat()
            for group, topic in ((GROUP, TOPIC), (HIDDEN_GROUP, HIDDEN_TOPIC)):
                place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
                told = {**place, "commitOffset": "1"}
                assert ask(client, VICTIM, RequestCode.UPDATE_CONSUMER_OFFSET, told).code == 0

    def beat(self) -> None:
        """The victim's members say that they are there, as they must from time to time."""
        groups = (GROUP, HIDDEN_GROUP)
        for member in self._members:
            assert beat(member, VICTIM, CLIENT, producers=groups, consumers=groups).code == 0

    def _fill_names(self, address: str) -> None:
        with WireClient(address, who=ROOT, tls=self.tls) as client:
            item = {"namespace": "canary-space", "key": "canary-key", "value": "canary-value"}
            assert client.ask(RequestCode.PUT_KV_CONFIG.value, item).code == 0
            route = RequestCode.GET_ROUTEINFO_BY_TOPIC.value
            wait_until(
                lambda: client.ask(route, {"topic": TOPIC}).body.count(b'"brokerName"') >= 6,
                what="routes to three brokers", deadline_s=90.0,
            )  # fmt: skip

    def _is_slave_in_step(self) -> bool:
        seen = self.everything()
        return all(
            value == seen[name.replace("SLAVE", "ASYNC_MASTER")]
            for name, value in seen.items()
            if name.startswith("SLAVE") and ("OFFSET" in name or "end of" in name)
        )

    def ports(self) -> list[Port]:
        """All ports; that of one ledger is without TLS."""
        found = []
        for name, program in self.programs.items():
            for number, kind in sorted(ports_of(program).items()):
                is_plain = kind == LEDGER and name != "sealed"
                found.append(Port(name, kind, number, None if is_plain else self.tls))
        return found

    def everything(self) -> dict[str, Any]:
        """Tables, rules, settings and ends of queues of all programs."""
        seen: dict[str, Any] = {}
        for name, program in self.programs.items():
            if name == "names":
                continue
            with WireClient(program.address, who=ROOT, tls=self.tls) as client:
                for code in (
                    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
                    RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
                ):  # fmt: skip
                    seen[f"{name} {code.name}"] = client.ask(code.value).body
                for topic in (TOPIC, HIDDEN_TOPIC):
                    fields = {"topic": topic, "queueId": "0"}
                    ends = client.ask(RequestCode.GET_MAX_OFFSET.value, fields).ext_fields
                    seen[f"{name} end of {topic}"] = ends
                group = {"consumerGroup": GROUP}
                members = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP.value, group).body
                seen[f"{name} members"] = members
        with WireClient(self.programs["names"].address, who=ROOT, tls=self.tls) as client:
            for code, fields in (
                (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
                (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
                (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}),
                (RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "canary-space"}),
                (RequestCode.GET_NAMESRV_CONFIG, {}),
            ):
                seen[f"names {code.name}"] = client.ask(code.value, fields).body
        return seen


def _private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path
