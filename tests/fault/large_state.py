"""A broker state that is large, in a log of small records: it is told again, and the log forgotten.

    python -m tests.fault.large_state [--topics 20000] [--groups 3] [--queues 8]

Topics and groups are made, each group commits an offset for each queue of each topic, in a log of
segments of 16 MiB with maxMessageSize=65536. Retention drops what is before the last sweep; then
all members start again, one of them on an empty disk, then one after the other. Each member must
know all of it, each time. Prints what each step took, and the memory of the members.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ledgermq.broker.storage.state_files import parse_tolerant
from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.fault.program_changes import FORMER, MEMBERS, Group
from tests.fault.small_disk import SmallDisk
from tests.processes import name_server
from tests.waiting import wait_until

SETTINGS: Final = (
    "maxMessageSize=65536",
    "maxTopicCount=100000",
    "maxNewTopicsPerAddress=1000000",
    "maxNewTopicsAtOnce=1000000",
    "cleanResourceInterval=1000",
)
FILL: Final = "Fill"
FILL_BYTES: Final = 60_000
FILLED_BYTES: Final = 200 << 20
# Of each member; beyond 85 % full segments go, whatever their age.
DISK_BYTES: Final = 1 << 30
_FULL_PERCENT: Final = 87
# Requests that are on their way at once.
_PIPELINED: Final = 500
_SLOW_S: Final = 300.0


class State:
    """What is to be known of topics, groups and offsets."""

    def __init__(self, topics: int, groups: int, queues: int) -> None:
        self.topics = [f"Large-{number:05}" for number in range(topics)]
        self.groups = [f"large-readers-{number}" for number in range(groups)]
        self.queues = queues

    def requests(self) -> Iterator[tuple[RequestCode, dict[str, Any]]]:
        """What makes it."""
        for topic in (FILL, *self.topics):
            yield RequestCode.UPDATE_AND_CREATE_TOPIC, {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": self.queues,
                "writeQueueNums": self.queues, "perm": 6, "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
        for group in self.groups:
            for number, topic in enumerate(self.topics):
                for queue_id in range(self.queues):
                    yield RequestCode.UPDATE_CONSUMER_OFFSET, {
                        "consumerGroup": group, "topic": topic, "queueId": queue_id,
                        "commitOffset": number + queue_id,
                    }  # fmt: skip

    def missing_on(self, address: str) -> list[str]:
        """Returns what a member does not know, in words."""
        with WireClient(address, _SLOW_S) as client:
            topics = parse_tolerant(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body.decode())
            offsets = parse_tolerant(client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body.decode())
        missing = [topic for topic in self.topics if topic not in topics["topicConfigTable"]]
        for group in self.groups:
            for number, topic in enumerate(self.topics):
                known = offsets["offsetTable"].get(f"{topic}@{group}", {})
                wanted = {str(queue): number + queue for queue in range(self.queues)}
                if known != wanted:
                    missing.append(f"{topic}@{group}")
        return missing


def ask_all(address: str, requests: Iterable[tuple[RequestCode, dict[str, Any]]]) -> str:
    """Sends many requests at once; returns what the first that was refused was told, or ""."""
    waiting = iter(requests)
    with WireClient(address, _SLOW_S) as client:
        while some := list(itertools.islice(waiting, _PIPELINED)):
            for code, fields in some:
                client.ask_later(code.value, fields)
            for _ in some:
                answer = client.read()
                if answer is None:
                    return "the connection was closed"
                if answer.code != 0:
                    return f"{answer.code} {answer.remark}"
    return ""


class Play:
    """One group, from nothing to its last restart."""

    def __init__(
        self,
        group: Group,
        disks: Sequence[SmallDisk],
        state: State,
        told: Callable[[str], None],
    ) -> None:
        self._group = group
        self._disks = disks
        self._state = state
        self._told = told

    def run(self) -> None:
        """Takes all steps; what does not hold is raised."""
        self._timed("made", self._make)
        self._all_know()
        self._timed("retention dropped the log before the last sweep", self._drop_log)
        self._all_know()
        self._timed("all started again", self._restart_all)
        self._all_know()
        self._timed("one on an empty disk is whole", self._wipe_one)
        self._all_know()
        self._timed("each started again, one after the other", self._roll)
        self._all_know()

    def _timed(self, what: str, step: Callable[[], object]) -> None:
        begun_s = time.monotonic()
        step()
        took_s = time.monotonic() - begun_s
        memory = (f"{member.resident_mb:.0f}" for member in self._group.programs.values())
        self._told(f"{what}: {took_s:.1f} s, members have {', '.join(memory)} MB")

    def _address(self) -> str:
        return self._group.programs[self._group.leader()].address

    def _make(self) -> None:
        """Asks for all of it, and for all again where the leadership moved meanwhile."""
        refusals: list[str] = []

        def is_made() -> bool:
            refusal = ask_all(self._address(), self._state.requests())
            refusals.append(refusal)
            return not refusal

        wait_until(is_made, what="the state", deadline_s=_SLOW_S, detail=lambda: str(refusals[-3:]))

    def _all_know(self) -> None:
        """Every member knows all; a follower hears of the last changes with the next heart beat."""
        for name in MEMBERS:
            address = self._group.programs[name].address
            wait_until(
                lambda address=address: not self._state.missing_on(address),
                what=f"the whole state of {name}",
                deadline_s=_SLOW_S,
            )

    def _first_position(self, name: str) -> int:
        return int(self._group.figures(name)["commitLogMinOffset"])

    def _drop_log(self) -> None:
        """Messages fill the log; on disks that are nearly full no member keeps its beginning."""
        begun = {name: self._first_position(name) for name in MEMBERS}
        self._fill(FILLED_BYTES // FILL_BYTES)
        ballast = [disk.put_ballast(_FULL_PERCENT) for disk in self._disks]

        def is_dropped() -> bool:
            self._fill(10)
            return all(self._first_position(name) > begun[name] for name in MEMBERS)

        wait_until(is_dropped, what="a log that begins later", deadline_s=_SLOW_S)
        for file in ballast:
            file.unlink()

    def _fill(self, count: int) -> None:
        """Sends to whoever leads: on a starved machine the leadership may move meanwhile."""
        taken, refusal = 0, ""

        def are_taken() -> bool:
            nonlocal taken, refusal
            with WireClient(self._address(), _SLOW_S) as client:
                while taken < count:
                    answer = client.send(FILL, 0, b"x" * FILL_BYTES)
                    if answer.code != 0:
                        refusal = f"{answer.code} {answer.remark}"
                        return False
                    taken += 1
            return True

        wait_until(
            are_taken,
            what=f"{count} messages",
            deadline_s=_SLOW_S,
            detail=lambda: f"of which {taken} are taken: {refusal}",
        )

    def _restart_all(self) -> None:
        for name in MEMBERS:
            assert self._group.programs[name].stop() == 0
        for name in MEMBERS:
            self._group.start(name, FORMER)
        self._group.wait_until_whole()

    def _wipe_one(self) -> None:
        leader = self._group.leader()
        name = next(name for name in MEMBERS if name != leader)
        assert self._group.programs[name].stop() == 0
        for path in self._group.store(name).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._group.start(name, FORMER)
        self._group.wait_until_whole()

    def _roll(self) -> None:
        for name in MEMBERS:
            self._group.replace(name, FORMER)


def run(folder: Path, state: State, told: Callable[[str], None]) -> None:
    """Plays it on a group of three; what does not hold is raised.

    Raises:
        NoMountError: nobody may mount here.
    """
    with contextlib.ExitStack() as ends:
        disks = []
        for name in MEMBERS:
            disks.append(SmallDisk(folder / name, DISK_BYTES))
            ends.callback(disks[-1].unmount)
        address = ends.enter_context(name_server(folder))
        group = ends.enter_context(Group(folder, address, SETTINGS))
        Play(group, disks, state, told).run()


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    """Plays it once; a failure is raised."""
    parser = argparse.ArgumentParser(description="a large state in a log of small records")
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--queues", type=int, default=8)
    options = parser.parse_args(words)
    state = State(options.topics, options.groups, options.queues)
    with tempfile.TemporaryDirectory(prefix="ledgermq-large-") as folder:
        run(Path(folder), state, say)
    say(f"{options.topics} topics, {options.topics * options.groups} pairs: all known, each time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
