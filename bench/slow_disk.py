"""The longest turn of a reactor whose disk needs 100 ms for every sync.

python -m bench.slow_disk [--flush ASYNC_FLUSH] [--sync-ms 100] [--keep DIR]

Three real brokers of one group, then a master and a slave without a ledger, under load, while
leaders change, logs are cut, segments and queues are made and removed, and tools change this and
that. Prints a table: how long a turn lasted at most, in all processes, and where it was. A machine
with other work makes a thread wait for a processor; so the time less that is told, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.availability import QUEUES, TOPIC, Senders
from bench.turns import HEAD, Phase, Stop, Written, read_lines, summarize, table_row
from ledgermq.cli.leader import LedgerGroup
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import LiveProgram, name_server, run_ledgermq
from tests.waiting import wait_until

GROUP = "slow"
SENDER_COUNT = 16
BODY_BYTES = 4096
TOPICS = 100
PATIENCE_S = 120.0
SETTINGS = (
    "mappedFileSizeCommitLog=262144",
    "mappedFileSizeDLedgerIndex=32768",
    "mappedFileSizeConsumeQueue=2000",
    "maxMessageSize=16384",
    "maxHashSlotNum=1000",
    "maxIndexNum=2000",
    "cleanResourceInterval=500",
    "flushConsumerOffsetInterval=1000",
    "haSendHeartbeatInterval=500",
    "aclEnable=true",
)
_PAUSE = threading.Event()
# Who comes from this machine needs no signature; an account is there to be changed.
SECRET = "known to the members of a benchmark alone"
RULES = "globalWhiteRemoteAddresses:\n- 127.0.0.1\n"


class SlowBroker:
    """One broker with a slow disk; it may be killed and started again on its store."""

    def __init__(
        self, folder: Path, name: str, namesrv: str, sync_ms: float, words: Sequence[str]
    ) -> None:
        self.name = name
        self.file = folder / f"{name}.turns"
        self.file.touch()
        rules = folder / f"{name}.acl" / "plain_acl.yml"
        rules.parent.mkdir()
        rules.write_text(RULES)
        rules.chmod(0o600)
        # The same for all members: rules that a tool changes go through the ledger sealed.
        secret = folder / "group.secret"
        secret.touch(0o600)
        secret.write_text(SECRET)
        port = free_ports(1, spread=(0, 1, -2))[0]
        self.address = f"127.0.0.1:{port}"
        self._folder = folder
        self._command = [sys.executable, "-m", "bench.slow_process", self.file, str(sync_ms)]
        self._words = [
            "broker", "--json", "-n", namesrv, f"listenPort={port}", "brokerIP1=127.0.0.1",
            f"storePathRootDir={folder / name}", f"aclFile={rules}",
            f"dLegerGroupSecretFile={secret}", "dLegerToolAddresses=127.0.0.1",
            *SETTINGS, *words,
        ]  # fmt: skip
        self.program: LiveProgram | None = None

    def start(self) -> None:
        """Starts it."""
        log = self._folder / f"{self.name}.log"
        self.program = LiveProgram(self._words, log, command=list(map(str, self._command)))

    @property
    def role(self) -> str:
        """What it says of itself."""
        return "" if self.program is None else str(self.program.status.get("role", ""))

    @property
    def is_serving(self) -> bool:
        """Whether it says that it takes messages."""
        return self.program is not None and bool(self.program.status.get("serving"))

    @property
    def running(self) -> LiveProgram:
        """Its process."""
        assert self.program is not None
        return self.program

    def fill_disk(self, is_full: bool) -> None:
        """Makes its disk seem nearly full, or as empty as it is."""
        flag = Path(f"{self.file}.full")
        flag.touch() if is_full else flag.unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends it in order."""
        if self.program is not None:
            self.program.stop()


class Scene:
    """Brokers under load, and what was done to them when."""

    def __init__(self, brokers: Sequence[SlowBroker]) -> None:
        self.brokers = brokers
        self.phases: list[Phase] = []
        self.stops: list[Stop] = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """All that happens in the block, and half a second after, which is for the last lines."""
        begin_s = time.monotonic()
        print(f"... {name}", file=sys.stderr, flush=True)
        yield
        _PAUSE.wait(0.5)
        self.phases.append(Phase(name, begin_s, time.monotonic()))

    def lines(self) -> list[Written]:
        """All that the processes wrote."""
        return [line for broker in self.brokers for line in read_lines(broker.file)]

    def report(self) -> None:
        """Prints a row for each phase."""
        lines = self.lines()
        for phase in self.phases:
            print(table_row(phase.name, summarize(lines, phase, self.stops)))

    def leader(self, *others: SlowBroker) -> SlowBroker:
        """The one that leads, none of these."""

        def find() -> SlowBroker | None:
            found = [x for x in self.brokers if x.is_serving and x not in others]
            return found[0] if len(found) == 1 else None

        leader = wait_until(find, what="one leader", deadline_s=PATIENCE_S)
        assert leader is not None
        return leader

    def wait_for_followers(self, count: int) -> None:
        """Waits until so many follow."""
        wait_until(
            lambda: [x.role for x in self.brokers].count("FOLLOWER") == count,
            what=f"{count} followers",
            deadline_s=PATIENCE_S,
        )

    def freeze(self, broker: SlowBroker) -> None:
        """Stops a process by a signal; `thaw` lets it go on."""
        os.kill(broker.running.pid, signal.SIGSTOP)
        self.stops.append(Stop(broker.running.pid, time.monotonic(), float("inf")))

    def thaw(self, broker: SlowBroker) -> None:
        """Lets a stopped process go on."""
        os.kill(broker.running.pid, signal.SIGCONT)
        pid, begin_s, _ = self.stops.pop()
        self.stops.append(Stop(pid, begin_s, time.monotonic() + 0.05))


def admin(*words: object) -> None:
    """Runs a command of the administrator; a refusal is told."""
    done = run_ledgermq("admin", *words)
    if done.returncode:
        print(f"{words}: {done.stderr.strip()}", file=sys.stderr)


def touch_topics(address: str) -> None:
    """Sends one message to each of many topics, which that makes."""
    with WireClient(address, timeout_s=PATIENCE_S) as client:
        for number in range(TOPICS):
            client.send(f"Many{number}", 0, b"x", defaultTopicQueueNums="1")


def use_tools(scene: Scene, leader: SlowBroker) -> None:
    """Commands that change topics, groups, settings and rules."""
    to = ("-b", leader.address)
    for number in range(3):
        admin("updateTopic", *to, "-t", f"Tool{number}", "-r", 4, "-w", 4)
        admin("updateSubGroup", *to, "-g", f"Group{number}")
        for broker in scene.brokers:
            admin("updateBrokerConfig", "-b", broker.address, "-k", "slaveReadEnable", "-v", "true")
            admin(
                "updateAclConfig", "-b", broker.address, "-a", f"user{number}name", "-s", "12345678"
            )
            admin("cleanExpiredCQ", "-b", broker.address)
    admin("deleteAccessConfig", *to, "-a", "user1name")
    with WireClient(leader.address, timeout_s=PATIENCE_S) as client:
        client.ask(RequestCode.DELETE_TOPIC_IN_BROKER.value, {"topic": "Tool0"})


def clean(scene: Scene, senders: Senders) -> None:
    """Lets retention take what it may."""
    for broker in scene.brokers:
        broker.fill_disk(True)
    senders.rest(4.0)
    for broker in scene.brokers:
        broker.fill_disk(False)


def in_group(scene: Scene, senders: Senders, group: LedgerGroup, full: float) -> None:
    """All that is done to a group of three."""
    with scene.phase("load, segments and queues roll"):
        senders.rest(full)
    with scene.phase("three hand-overs"):
        members = sorted(group.peers)
        for _ in range(3):
            # A busy machine may have an election of its own at that moment.
            with contextlib.suppress(AdminError):
                leader_id, _ = group.find_leader()
                group.hand_over(members[(members.index(leader_id) + 1) % len(members)])
            senders.rest(2.0)
    scene.leader()
    with scene.phase("leader stands still, another is elected, it comes back"):
        old = scene.leader()
        scene.freeze(old)
        scene.leader(old)
        senders.wait_for_more(20)
        scene.thaw(old)
        scene.wait_for_followers(2)
    with scene.phase("leader alone, its tail is cut when it comes back"):
        cut_tail(scene, senders)
    with scene.phase("kill -9 of a follower, it comes back and catches up"):
        follower = next(x for x in scene.brokers if x.role == "FOLLOWER")
        follower.running.kill()
        senders.rest(full / 2)
        follower.start()
        scene.wait_for_followers(2)
        senders.rest(full / 2)
    with scene.phase("retention"):
        clean(scene, senders)
    with scene.phase(f"{TOPICS} new topics, flush of their queues"):
        touch_topics(scene.leader().address)
        senders.rest(30.0)
    with scene.phase("topics, groups, settings, access rules by tools"):
        use_tools(scene, scene.leader())


def cut_tail(scene: Scene, senders: Senders) -> None:
    """A leader that is alone takes what nobody else has; the others go on without it."""
    leader = scene.leader()
    others = [x for x in scene.brokers if x is not leader]
    for broker in others:
        broker.running.kill()
    senders.rest(0.5)
    scene.freeze(leader)
    for broker in others:
        broker.start()
    scene.leader(leader)
    senders.wait_for_more(20)
    scene.thaw(leader)
    scene.wait_for_followers(2)
    senders.rest(2.0)


def in_pair(scene: Scene, senders: Senders, full: float) -> None:
    """All that is done to a master and its slave."""
    master, slave = scene.brokers
    with scene.phase("master and slave: load, segments and queues roll"):
        senders.rest(full)
    with scene.phase("slave: kill -9, it comes back and catches up"):
        slave.running.kill()
        senders.rest(full / 2)
        slave.start()
        senders.rest(full)
    with scene.phase("master and slave: retention"):
        clean(scene, senders)
    with scene.phase("master and slave: tools"):
        use_tools(scene, master)


@contextlib.contextmanager
def started(brokers: Sequence[SlowBroker]) -> Iterator[Scene]:
    """Starts brokers, and stops those that run in the end."""
    with contextlib.ExitStack() as ends:
        for broker in brokers:
            broker.start()
            ends.callback(broker.stop)
        scene = Scene(brokers)
        leader = scene.leader()
        admin("updateTopic", "-b", leader.address, "-t", TOPIC, "-r", QUEUES, "-w", QUEUES)
        yield scene


def group_of(
    folder: Path, namesrv: str, sync_ms: float, *settings: str
) -> tuple[list[SlowBroker], dict[str, str]]:
    """Three members, not yet started, and where each one's ledger is."""
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
    told = ";".join(f"{name}-{address}" for name, address in peers.items())
    words = (f"brokerName={GROUP}", "enableDLegerCommitLog=true", f"dLegerGroup={GROUP}")
    words += (f"dLegerPeers={told}", *settings)
    members = [
        SlowBroker(folder, name, namesrv, sync_ms, (*words, f"dLegerSelfId={name}"))
        for name in peers
    ]
    return members, peers


def pair_of(folder: Path, namesrv: str, sync_ms: float, *settings: str) -> list[SlowBroker]:
    """A master and its slave without a ledger, not yet started."""
    words = ("brokerName=pair", "enableDLegerCommitLog=false", *settings)
    return [
        SlowBroker(
            folder,
            role.lower(),
            namesrv,
            sync_ms,
            (*words, f"brokerRole={role}", f"brokerId={number}"),
        )
        for number, role in enumerate(("ASYNC_MASTER", "SLAVE"))
    ]


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Runs both parts and prints their tables."""
    flush = f"flushDiskType={options.flush}"
    print(HEAD)
    with name_server(folder) as namesrv:
        members, peers = group_of(folder, namesrv, options.sync_ms, flush)
        with started(members) as scene, Remote(namesrv) as remote:
            with Senders([x.address for x in members], SENDER_COUNT, BODY_BYTES, 0.05) as senders:
                in_group(scene, senders, LedgerGroup(remote, GROUP, peers), options.seconds)
            scene.report()
        pair = pair_of(folder, namesrv, options.sync_ms, flush)
        with started(pair) as scene:
            with Senders([pair[0].address], SENDER_COUNT, BODY_BYTES, 0.05) as senders:
                in_pair(scene, senders, options.seconds)
            scene.report()


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="longest turns of a reactor with a slow disk")
    parser.add_argument("--flush", default="SYNC_FLUSH", help="flushDiskType")
    parser.add_argument("--sync-ms", type=float, default=100.0, help="every sync lasts so long")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load alone")
    parser.add_argument("--keep", type=Path, help="a folder for stores and logs, to look into")
    options = parser.parse_args()
    with contextlib.ExitStack() as ends:
        folder = options.keep
        if folder is None:
            made = ends.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-bench-"))
            folder = Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, options)


if __name__ == "__main__":
    main()
