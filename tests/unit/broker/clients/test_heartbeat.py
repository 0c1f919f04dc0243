"""What housekeeping does with offsets: of groups without a client they go after their time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import formatEvent, globalLogPublisher

from ledgermq.broker.clients.heartbeat import ClientProcessor
from ledgermq.logs.repeats import WRITTEN_MAX, Repeats
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts
from tests.unit.protocol.wires import Recorder

HOUR_MS = 3_600_000


class Bench:
    """A leader with offsets of the groups g and h; a client of g is there."""

    def __init__(self, **settings: str) -> None:
        self.parts = parts = Parts(channelExpiredTimeout="86400000", **settings).lead()
        self.processor = ClientProcessor(
            parts.config, parts.leadership, parts.state, parts.clients,
            lambda: parts.now_ms + parts.jump_ms, lambda: float(parts.now_ms), parts.turn.soon,
        )  # fmt: skip
        self.connection = self.connect()
        parts.state.put_topic(TopicConfig("T", 4, 4))
        for group in ("g", "h"):
            parts.state.commits.tell(group, "T", 0, 5)
        parts.state.write_offsets()
        self.beat()

    def connect(self) -> CommandProtocol:
        connection = CommandProtocol(Clock(), Recorder())
        connection.context = (b"\x0a\x00\x00\x09", 5555)
        connection.makeConnection(StringTransport())
        return connection

    def beat(
        self,
        connection: CommandProtocol | None = None,
        *,
        wants: str = "*",
        version: int = 1,
        group: str = "g",
    ) -> None:
        wanted: Any = [{"topic": "T", "subString": wants, "subVersion": version}]
        consumers = [{"groupName": group, "subscriptionDataSet": wanted}]
        body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
        command = RemotingCommand(code=int(RequestCode.HEART_BEAT), body=body)
        self.processor.heart_beat(connection or self.connection, command)

    def pass_hours(self, hours: int) -> list[str]:
        """Returns the groups that have offsets afterwards."""
        for _ in range(hours):
            self.parts.now_ms += HOUR_MS
            self.beat()
            self.processor.close_silent()
        return list(self.parts.state.offsets.groups_behind("T"))


def test_offsets_of_a_group_without_a_client_go_after_their_time() -> None:
    bench = Bench(offsetsRetentionMinutes="6000", fileReservedTime="48")
    # The wall clock has no say in it.
    bench.parts.jump_ms = 1000 * HOUR_MS
    assert bench.pass_hours(99) == ["g", "h"]
    assert bench.pass_hours(1) == ["g"]
    assert bench.pass_hours(300) == ["g"]


def test_a_client_that_is_gone_counts_no_longer() -> None:
    bench = Bench(offsetsRetentionMinutes="60", fileReservedTime="2")
    assert bench.pass_hours(10) == ["g"]
    bench.processor.connection_lost(bench.connection)
    bench.beat = lambda: None  # type: ignore[method-assign]
    assert bench.pass_hours(2) == ["g"]
    assert bench.pass_hours(1) == []


@pytest.mark.parametrize(
    ("minutes", "hours"), [("60", "72"), ("4320", "1")], ids=["as messages", "as configured"]
)
def test_offsets_are_kept_as_long_as_messages_at_least(minutes: str, hours: str) -> None:
    bench = Bench(offsetsRetentionMinutes=minutes, fileReservedTime=hours)
    assert bench.pass_hours(71) == ["g", "h"]
    assert bench.pass_hours(1) == ["g"]


def test_offsets_are_kept_for_ever_where_that_is_wanted() -> None:
    bench = Bench(offsetsRetentionMinutes="0", fileReservedTime="1")
    assert bench.pass_hours(500) == ["g", "h"]


def test_a_member_that_does_not_serve_lets_nothing_go() -> None:
    bench = Bench(offsetsRetentionMinutes="60", fileReservedTime="1")
    bench.parts.leadership.changed("FOLLOWER", 2, "n1")
    bench.parts.state.follow()
    assert bench.pass_hours(100) == ["g", "h"]


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that are written in the block, as the log writes them."""
    lines: list[str] = []
    observer: Any = Repeats(lambda event: lines.append(formatEvent(event)), lambda: 0.0)
    globalLogPublisher.addObserver(observer)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observer)


def test_operators_see_what_expired() -> None:
    bench = Bench(offsetsRetentionMinutes="60", fileReservedTime="1")
    with logged() as lines:
        bench.pass_hours(2)
    assert lines == [
        "offsets of 1 pairs of topic and group expired, nobody used them for 60 min"
        " (key offsetsRetentionMinutes): T@h"
    ]


def test_a_group_that_is_divided_again_and_again_fills_no_log() -> None:
    bench = Bench()
    other = bench.connect()
    with logged() as lines:
        for number in range(50):
            bench.beat(other, wants="A", version=2 * number + 2)
            bench.beat(other, wants="*", version=2 * number + 3)
            bench.parts.now_ms += 1000
    assert len(lines) == 1 and "members of group g subscribe to different things" in lines[0]
    with logged() as lines:
        bench.parts.now_ms += 600_000
        bench.beat(other, wants="A", version=1000)
    assert len(lines) == 1


def test_many_divided_groups_of_one_client_fill_no_log() -> None:
    bench = Bench()
    other = bench.connect()
    with logged() as lines:
        for number in range(900):
            bench.beat(group=f"g{number}", version=number + 2)
            bench.beat(other, group=f"g{number}", wants="A", version=number + 2)
    assert len(lines) == WRITTEN_MAX
