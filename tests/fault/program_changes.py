"""The programs of a group are replaced one by one, under load: by the next one, and back.

    python -m tests.fault.program_changes [--rounds 5]

A producer sends all the time; with each step a topic is made and an offset committed. No send may
fail, nothing that was acknowledged may be missing. One round goes half way and back; one goes all
the way, and then finds the former program refused.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from ledgermq.cli.program import EXIT_NOT_READ
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.client import Message, Producer, ProducerConfig, SendResult
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import KVTable
from tests.e2e.wire_client import WireClient
from tests.fault.committed_state import BROKER, Leader
from tests.fault.up_group import TOPIC
from tests.free_ports import free_ports
from tests.processes import LEDGERMQ, SMALL_STORE, LiveProgram, Programs, name_server
from tests.waiting import wait_until

MEMBERS: Final = ("n0", "n1", "n2")
FORMER: Final = LEDGERMQ
NEXT: Final = (sys.executable, "-m", "tests.next_program")
# Between two messages, and how long one may take with all its retries.
_PAUSE_S: Final = 0.004
_SEND_S: Final = 30.0
# Acknowledged between two steps.
_BETWEEN: Final = 100


class Load:
    """A producer that sends until it is stopped."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._is_over = threading.Event()
        # Body by queue and offset, of what was acknowledged.
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failures: list[str] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Sends no more; what was sent is answered."""
        self._is_over.set()
        self._thread.join(2 * _SEND_S)

    def wait_for_more(self) -> None:
        """Waits until some more messages are acknowledged."""
        wanted = len(self.acked) + _BETWEEN
        wait_until(lambda: len(self.acked) >= wanted or self.failures, what="acknowledged messages")

    async def _send(self) -> None:
        config = ProducerConfig(timeout_s=_SEND_S)
        async with Producer(self._name_server, config=config) as producer:
            number = 0
            while not self._is_over.is_set():
                body = b"%d" % number
                result = await producer.submit(Message(TOPIC, body))
                result.add_done_callback(lambda done, body=body: self._note(body, done))
                number += 1
                await asyncio.sleep(_PAUSE_S)
            await producer.flush()
            await asyncio.sleep(0)

    def _note(self, body: bytes, done: asyncio.Future[SendResult]) -> None:
        error = done.exception()
        if error is not None:
            self.failures.append(repr(error))
            return
        self.acked[done.result().queue_id, done.result().queue_offset] = body


class Group(Programs):
    """Three brokers, each a process of either program."""

    def __init__(self, folder: Path, name_server: str, settings: Sequence[str] = ()) -> None:
        super().__init__()
        self.folder = folder
        self.name_server = name_server
        self._settings = settings
        self._ports = free_ports(len(MEMBERS), spread=(0, -2))
        self._ledger_ports = free_ports(len(MEMBERS))

    def __enter__(self) -> Self:
        for name in MEMBERS:
            self.start(name, FORMER)
        self.wait_until_whole()
        return self

    def start(self, name: str, program: Sequence[str]) -> LiveProgram:
        number = MEMBERS.index(name)
        peers = ";".join(
            f"{peer}-127.0.0.1:{port}"
            for peer, port in zip(MEMBERS, self._ledger_ports, strict=True)
        )
        words = [
            "broker", "--json", "-n", self.name_server, f"listenPort={self._ports[number]}",
            "brokerIP1=127.0.0.1", f"brokerName={BROKER}", f"storePathRootDir={self.store(name)}",
            "enableDLegerCommitLog=true", f"dLegerGroup={BROKER}", f"dLegerPeers={peers}",
            f"dLegerSelfId={name}", *SMALL_STORE, *self._settings,
        ]  # fmt: skip
        self.programs[name] = LiveProgram(words, self.folder / f"{name}.log", command=program)
        return self.programs[name]

    def store(self, name: str) -> Path:
        return self.folder / name

    def replace(self, name: str, program: Sequence[str]) -> None:
        """Stops a member in order and starts it with a program, when it is whole again."""
        assert self.programs[name].stop() == 0
        self.start(name, program)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Waits until one serves, and the others follow."""

        def is_whole() -> bool:
            for name, member in self.programs.items():
                assert member.is_running, f"{name} has ended"
            found = sorted(
                (str(member.status.get("role")), bool(member.status.get("serving")))
                for member in self.programs.values()
            )
            return found == [("FOLLOWER", False), ("FOLLOWER", False), ("LEADER", True)]

        wait_until(is_whole, what="a leader and two followers", deadline_s=60)

    def leader(self) -> str:
        """Waits for the member that serves, and returns its name."""

        def find() -> str:
            serving = [n for n, member in self.programs.items() if member.status.get("serving")]
            return serving[0] if len(serving) == 1 else ""

        return wait_until(find, what="a leader")

    def figures(self, name: str) -> dict[str, str]:
        """What a broker tells of itself."""
        with WireClient(self.programs[name].address) as client:
            answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.decode(answer.body).table

    def wait_for_format(self, version: int) -> None:
        """Waits until the state of all members is in a format."""
        wait_until(
            lambda: all(self.figures(name)["stateFormat"] == str(version) for name in MEMBERS),
            what=f"format {version}",
        )

    def judge(self, load: Load) -> None:
        """No send failed; all that was acknowledged is in its place."""
        load.stop()
        assert load.failures == [], load.failures[:5]
        with WireClient(self.programs[self.leader()].address) as client:
            found = {
                (queue_id, record.queue_offset): record.body
                for queue_id in {place[0] for place in load.acked}
                for record in client.read_queue(TOPIC, queue_id)
            }
        lost = [place for place, body in load.acked.items() if found.get(place) != body]
        assert lost == [], f"{len(lost)} of {len(load.acked)} are lost: {lost[:5]}"


class Changes:
    """Changes of the state, made along with the programs."""

    def __init__(self, group: Group, remote: Remote) -> None:
        self._group = group
        self._remote = remote
        self.count = 0

    def _leader(self) -> Leader:
        address = self._group.programs[self._group.leader()].address
        return Leader(self._remote, address)

    def make(self) -> None:
        """A topic is made and an offset committed, by whom leads."""

        def is_made() -> bool:
            try:
                leader = self._leader()
                leader.make_topic(f"Made-{self.count}")
                leader.commit(0, self.count)
            except AdminError:
                # It leads no longer.
                return False
            return True

        wait_until(is_made, what="a change of the state")
        self.count += 1

    def judge(self) -> None:
        """All of it is known."""
        leader = self._leader()
        topics = leader.topics()
        missing = [n for n in range(self.count) if f'"Made-{n}"'.encode() not in topics]
        assert missing == [] and leader.committed(0) == self.count - 1, missing


def go_half_way_and_back(folder: Path) -> int:
    """Two members get the next program and the former one back; returns what was acknowledged."""
    with name_server(folder) as address, Group(folder, address) as group, Load(address) as load:
        with Remote(address) as remote:
            changes = Changes(group, remote)
            changes.make()
            for name, program in (("n2", NEXT), ("n1", NEXT), ("n1", FORMER), ("n2", FORMER)):
                load.wait_for_more()
                group.replace(name, program)
                changes.make()
            load.wait_for_more()
            changes.judge()
        group.wait_for_format(1)
        group.judge(load)
        return len(load.acked)


def go_all_the_way(folder: Path) -> int:
    """All members get the next program; then the former one finds that it is refused."""
    with name_server(folder) as address, Group(folder, address) as group, Load(address) as load:
        with Remote(address) as remote:
            changes = Changes(group, remote)
            changes.make()
            for name in MEMBERS:
                group.wait_for_format(1)
                load.wait_for_more()
                group.replace(name, NEXT)
                changes.make()
            wait_until(lambda: _wrote_next(group, changes), what="the next format")
            group.wait_for_format(2)
            load.wait_for_more()
            _refuse_the_former(group)
            load.wait_for_more()
            changes.make()
            changes.judge()
        group.judge(load)
        return len(load.acked)


def _wrote_next(group: Group, changes: Changes) -> bool:
    changes.make()
    return group.figures(group.leader())["stateFormat"] == "2"


def _refuse_the_former(group: Group) -> None:
    """With its files it does not start; on an empty disk nobody works with it."""
    name = next(name for name in MEMBERS if name != group.leader())
    assert group.programs[name].stop() == 0
    former = group.start(name, FORMER)
    assert former.wait() == EXIT_NOT_READ
    assert "has version 2, this program reads versions 1 to 1" in former.log_text()
    former.stop()
    kept = group.folder / "kept"
    group.store(name).rename(kept)
    former = group.start(name, FORMER)
    refusal = f"the program of {name} reads formats up to 1, and the state of"
    wait_until(lambda: refusal in str(former.status.get("alarm")), what="an alarm here")
    leader = group.leader()
    wait_until(
        lambda: refusal in group.figures(leader)["stateAlarm"], what="an alarm of the leader"
    )
    assert "do not work together" in former.log_text()
    assert former.stop() == 0
    shutil.rmtree(group.store(name))
    kept.rename(group.store(name))
    group.start(name, NEXT)
    group.wait_until_whole()
    wait_until(lambda: group.figures(leader)["stateAlarm"] == "", what="no alarm")


def main(words: Sequence[str] | None = None) -> int:
    """Plays the rounds; a failure is raised."""
    parser = argparse.ArgumentParser(description="programs are replaced one by one, and back")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(words)
    plays: tuple[Callable[[Path], int], ...] = (go_half_way_and_back, go_all_the_way)
    for number in range(options.rounds):
        for play in plays:
            with tempfile.TemporaryDirectory(prefix="ledgermq-programs-") as folder:
                acked = play(Path(folder))
            sys.stdout.write(
                f"round {number + 1}: {play.__name__}, {acked} acknowledged, 0 lost, 0 failed\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
