"""Large heart beats are taken over in pieces, for whoever sent them, and compile no condition."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from ledgermq.broker.clients import client_table
from ledgermq.broker.clients.client_table import Client, ClientTable
from ledgermq.broker.clients.departures import DEPARTURES_MS
from ledgermq.broker.clients.heartbeat import ClientProcessor
from ledgermq.broker.clients.member_notices import MemberNotices
from ledgermq.broker.selectors import sql_filter
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import UnregisterClientRequestHeader
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import NAMES_A_PIECE
from ledgermq.state.errors import InvalidRequestError
from tests.unit.broker.parts import Parts
from tests.unit.protocol.wires import Recorder

# What a look at the clock takes here: a piece of work, about.
_LOOK_MS = 0.05


class Bench:
    """A leader that clients tell of themselves."""

    def __init__(self, **settings: str) -> None:
        parts = self.parts = Parts(**settings).lead()
        self.clock_ms = 0.0
        self.processor = ClientProcessor(
            parts.config, parts.leadership, parts.state, parts.clients,
            lambda: parts.now_ms, self._look, parts.turn.soon,
        )  # fmt: skip

    def _look(self) -> float:
        self.clock_ms += _LOOK_MS
        return self.clock_ms

    def connect(self) -> CommandProtocol:
        connection = CommandProtocol(Clock(), Recorder())
        connection.context = (b"\x0a\x00\x00\x09", 5555)
        connection.makeConnection(StringTransport())
        return connection

    def beat(self, connection: CommandProtocol, groups: int, **wanted: Any) -> Any:
        consumers = [
            {
                "groupName": f"g{number}",
                "subscriptionDataSet": [{"topic": f"T{number}", "subVersion": 1, **wanted}],
            }
            for number in range(groups)
        ]
        body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
        command = RemotingCommand(code=int(RequestCode.HEART_BEAT), body=body)
        answer = self.processor.heart_beat(connection, command)
        if isinstance(answer, Deferred):
            ends: list[Any] = []
            answer.addBoth(ends.append)
            return ends
        return [answer]

    def members(self) -> int:
        return self.parts.clients.memberships_count


def test_a_large_heart_beat_takes_several_turns_and_is_answered_behind_the_last() -> None:
    bench = Bench()
    ends = bench.beat(bench.connect(), 200)
    done = [bench.members()]
    while not ends:
        bench.parts.turn.end()
        done.append(bench.members())
    assert len(done) > 10 and done == sorted(done) and done[-1] == 200
    assert max(later - sooner for sooner, later in zip(done, done[1:], strict=False)) < 30
    assert ends[0].code == ResponseCode.SUCCESS
    # Its groups are there by then.
    assert bench.parts.state.groups.find("g199") is not None
    assert bench.parts.state.topics.find("%RETRY%g199") is not None


def test_a_small_one_does_not_wait_for_large_ones() -> None:
    bench = Bench()
    large = bench.beat(bench.connect(), 200)
    assert not large and 0 < bench.members() < 200
    small = bench.beat(bench.connect(), 5)
    bench.parts.turn.end()
    assert not large and small[0].code == ResponseCode.SUCCESS


def test_it_counts_for_who_sent_it_whoever_signs_meanwhile() -> None:
    bench = Bench()
    made: list[str | None] = []
    state = bench.parts.state
    check = state.check_group

    def noting(group: Any, maker: Any) -> None:
        made.append(maker.account)
        check(group, maker)

    state.check_group = noting  # type: ignore[method-assign]
    # Nothing of the next one is looked at before another turn.
    first = bench.connect()
    first.account = "sender"
    bench.beat(first, 100)
    connection = bench.connect()
    connection.account = "sender"
    ends = bench.beat(connection, 200)
    connection.account = "another"
    while not ends:
        bench.parts.turn.end()
    assert made == ["sender"] * 200
    group = bench.parts.clients.find_group("g199")
    assert group is not None and {one.account for one in group.members.values()} == {"sender"}


def test_a_connection_that_closes_meanwhile_is_in_no_group() -> None:
    bench = Bench()
    connection = bench.connect()
    bench.beat(connection, 200)
    assert bench.members() > 0
    connection.close("test")
    bench.processor.connection_lost(connection)
    while bench.parts.turn.waiting:
        bench.parts.turn.end()
    assert bench.members() == 0 and bench.parts.clients.find_group("g0") is None


def test_connections_that_close_at_one_moment_leave_their_groups_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    told: set[str] = set()
    monkeypatch.setattr(MemberNotices, "tell", lambda _, group: told.add(group))
    large = [bench.connect() for _ in range(3)]
    small = bench.connect()
    for connection, groups in ((large[0], 200), (large[1], 200), (large[2], 200), (small, 5)):
        ends = bench.beat(connection, groups)
        producers = {"clientID": "c", "producerDataSet": [{"groupName": f"p{len(ends)}"}]}
        body = json.dumps(producers).encode()
        while not ends or bench.parts.turn.waiting:
            bench.parts.turn.end()
        bench.processor.heart_beat(connection, RemotingCommand(code=34, body=body))
    before = bench.members()
    told.clear()
    assert before == 3 * 200 + 5 + 4
    for connection in (*large, small):
        connection.close("test")
        bench.processor.connection_lost(connection)
    # A usual one is out at once, and nobody finds what is closed.
    assert before - 6 - 3 * 33 <= bench.members() <= before - 6
    assert not bench.parts.clients.has_groups(small)
    assert bench.parts.clients.find_producer("c") is None
    left = [bench.members()]
    while bench.parts.turn.waiting:
        begun_ms = bench.clock_ms
        bench.parts.turn.end()
        left.append(bench.members())
        assert bench.clock_ms - begun_ms < DEPARTURES_MS + 4 * _LOOK_MS
    assert told == {f"g{number}" for number in range(200)}
    steps = [sooner - later for sooner, later in itertools.pairwise(left)]
    assert left[-1] == 0 and max(steps) <= NAMES_A_PIECE * (DEPARTURES_MS / _LOOK_MS + 1)
    assert bench.parts.clients.consumer_group_names == []


def test_a_client_that_leaves_while_its_heart_beat_waits_is_out() -> None:
    bench = Bench()
    connection = bench.connect()
    beats = bench.beat(connection, 200)
    header = UnregisterClientRequestHeader(client_id="c", consumer_group="g199")
    command = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header)
    left = bench.processor.unregister(connection, command)
    assert isinstance(left, Deferred)
    ends: list[Any] = []
    left.addBoth(ends.append)
    while not ends:
        bench.parts.turn.end()
    assert beats[0].code == ends[0].code == ResponseCode.SUCCESS
    assert bench.members() == 199 and bench.parts.clients.find_group("g199") is None
    # Nobody else waits for it, nor it for anything else.
    answer = bench.processor.unregister(
        connection,
        RemotingCommand.request(
            RequestCode.UNREGISTER_CLIENT,
            UnregisterClientRequestHeader(client_id="c", consumer_group="g198"),
        ),
    )
    assert isinstance(answer, RemotingCommand) and bench.members() == 198


def test_what_a_client_says_last_holds_however_long_it_takes() -> None:
    bench = Bench()
    connection = bench.connect()
    large = bench.beat(connection, 200, subString="first")
    small = bench.beat(connection, 1, topic="another")
    assert large == small == []
    while not small:
        bench.parts.turn.end()
    group = bench.parts.clients.find_group("g0")
    assert large[0].code == small[0].code == ResponseCode.SUCCESS
    assert group is not None and list(group.subscriptions) == ["another"]


def test_a_wrong_one_changes_nothing_even_when_it_has_to_wait() -> None:
    bench = Bench()
    bench.beat(bench.connect(), 200)
    ends = bench.beat(bench.connect(), 100, subString="x" * 16_385)
    assert ends == []
    while not ends:
        bench.parts.turn.end()
    assert ends[0].check(InvalidRequestError)
    assert bench.members() == 200


@pytest.mark.parametrize("groups", [1, 50])
def test_no_condition_is_compiled_before_a_pull_asks_for_it(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    parse = sql_filter.parse_sql
    monkeypatch.setattr(
        sql_filter, "parse_sql", lambda text: (compiled.append(text), parse(text))[1]
    )
    bench = Bench(enablePropertyFilter="true")
    text = f"beat = {groups}"
    ends = bench.beat(bench.connect(), groups, subString=text, expressionType="SQL92")
    while not ends:
        bench.parts.turn.end()
    assert compiled == []
    group = bench.parts.clients.find_group("g0")
    assert group is not None
    matches = group.subscriptions["T0"].find_property_matcher()
    assert matches is not None and matches({"beat": str(groups)}) and compiled == [text]


def test_all_producers_are_told_in_pieces() -> None:
    bench = Bench()
    for number in range(70):
        groups = range(0, 300, 1 + number % 3)
        producers = [{"groupName": f"p{group:03}"} for group in groups]
        body = json.dumps({"clientID": f"c{number}", "producerDataSet": producers}).encode()
        bench.processor.heart_beat(bench.connect(), RemotingCommand(code=34, body=body))
        while bench.parts.turn.waiting:
            bench.parts.turn.end()
    ends: list[Any] = []
    answer = bench.processor.list_all_producers(bench.connect(), RemotingCommand(code=328))
    assert isinstance(answer, Deferred)
    answer.addBoth(ends.append)
    turns = 0
    while not ends:
        bench.parts.turn.end()
        turns += 1
    groups_told = json.loads(ends[0].body)["data"]
    assert list(groups_told) == [f"p{number:03}" for number in range(300)]
    for number, members in enumerate(groups_told.values()):
        here = {f"c{one}" for one in range(70) if number % (1 + one % 3) == 0}
        assert {member["clientId"] for member in members} == here
    # At most a dozen looks at the clock in each, of 32 members each.
    assert turns > sum(map(len, groups_told.values())) / (32 * 12)


def test_silent_clients_are_closed_in_pieces_and_one_look_for_them_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_table, "_LOOKED_AT_MAX", 2)
    bench = Bench()
    connections = [bench.connect() for _ in range(10)]
    for number, connection in enumerate(connections):
        client = Client(f"c{number}", 0, 0, "10.0.0.9:5555", seen_ms=0)
        bench.parts.clients.register_producer(connection, client, "g")
    bench.clock_ms += bench.parts.config.client_expiry_ms + 1000
    assert all(connection.is_open for connection in connections)
    looks: list[None] = []
    silent = ClientTable.silent_connections

    def counted(self: ClientTable, now_ms: float, silence_ms: int) -> Any:
        looks.append(None)
        return silent(self, now_ms, silence_ms)

    monkeypatch.setattr(ClientTable, "silent_connections", counted)
    bench.processor.close_silent()
    bench.processor.close_silent()
    open_counts = [sum(connection.is_open for connection in connections)]
    while bench.parts.turn.waiting:
        bench.parts.turn.end()
        open_counts.append(sum(connection.is_open for connection in connections))
    assert open_counts[:6] == [8, 6, 4, 2, 0, 0] and looks == [None]
    bench.processor.close_silent()
    assert looks == [None, None]
