"""No turn of a serving broker's reactor waits for the disk, whatever is done to the broker.

The brokers are real processes in which every call that may wait for a disk is noted with its
thread, see `bench.slow_process`.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.slow_disk import GROUP, Scene, SlowBroker, group_of, pair_of, started
from bench.turns import Turn, Written
from ledgermq.cli.leader import LedgerGroup
from ledgermq.cli.remote import Remote
from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.processes import name_server
from tests.waiting import wait_until

SYNC_MS = 2.0
BODY = b"." * 8000
FLUSH = "flushDiskType=SYNC_FLUSH"


class Watched:
    """Brokers from the moment they serve on, and what is done to them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        scene.wait_for_followers(len(scene.brokers) - 1)
        self._begin_s = time.monotonic()

    def summary_of(self, *wanted: str) -> dict[str, int]:
        """What was done, when all that is wanted was."""

        def find() -> dict[str, int] | None:
            done = dict[str, int]()
            for line in self._lines():
                for name, times in line.done.items():
                    done[name] = done.get(name, 0) + times
            return done if set(wanted) <= set(done) else None

        found = wait_until(find, what=f"{wanted} in the brokers' files")
        assert found is not None
        return found

    def _lines(self) -> list[Written]:
        return [line for line in self.scene.lines() if line.end_s > self._begin_s]

    def waits(self) -> list[Turn]:
        """The turns that asked for the disk."""
        return [
            turn
            for line in self._lines()
            for turn in line.turns
            # The first line may tell of turns before: a start may wait for the disk.
            if (turn.syncs or turn.names) and not turn.is_exempt and turn.end_s > self._begin_s
        ]

    def send(self, to: SlowBroker, segments: int) -> None:
        """Sends as many bytes as so many segments hold."""
        with WireClient(to.address) as client:
            for number in range(segments * 262_144 // len(BODY)):
                answer = client.send("Rolls", number % 4, BODY)
                assert answer.code == 0, answer

    def use_tools(self, to: SlowBroker) -> None:
        """Changes a topic, an account and the addresses that need none."""
        account = {"accessKey": "someone", "secretKey": "12345678", "admin": "false"}
        addresses = {"globalWhiteAddrs": "127.0.0.1"}
        with WireClient(to.address) as client:
            for code, fields in (
                (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account),
                (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, addresses),
                (RequestCode.DELETE_ACL_CONFIG, {"accessKey": "someone"}),
                (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}),
            ):
                answer = client.ask(code.value, fields)
                assert answer.code == 0, (code, answer)

    def clean(self) -> None:
        """Lets retention take the older segments."""
        for broker in self.scene.brokers:
            broker.fill_disk(True)
        self.summary_of("drops")
        for broker in self.scene.brokers:
            broker.fill_disk(False)


def test_no_turn_of_a_group_waits_for_the_disk(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, Remote(namesrv) as remote:
        members, peers = group_of(tmp_path, namesrv, SYNC_MS, FLUSH)
        with started(members) as scene:
            watched = Watched(scene)
            watched.send(scene.leader(), segments=3)
            old = scene.leader()
            LedgerGroup(remote, GROUP, peers).hand_over(
                next(broker.name for broker in members if broker is not old)
            )
            leader = scene.leader(old)
            watched.send(leader, segments=2)
            watched.use_tools(leader)
            watched.clean()
            watched.summary_of("rolls", "votes", "drops")
            assert watched.waits() == []


def test_no_turn_of_a_master_and_its_slave_waits_for_the_disk(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        with started(pair_of(tmp_path, namesrv, SYNC_MS, FLUSH)) as scene:
            watched = Watched(scene)
            watched.send(scene.leader(), segments=4)
            watched.use_tools(scene.leader())
            watched.clean()
            watched.summary_of("rolls", "drops")
            assert watched.waits() == []
