"""Long answers are made in slices of many turns, and are what they would be in one piece."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from ledgermq.broker.admin.query import QueryProcessor
from ledgermq.broker.clients.client_table import Client
from ledgermq.broker.offsets.group_offsets import GroupOffsetProcessor
from ledgermq.broker.selectors.filters import Subscription
from ledgermq.broker.stand_bodies import QUEUES_A_PIECE
from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import (
    ConsumeOffsets,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    MessageQueue,
    TopicOffset,
    TopicStatsTable,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from ledgermq.protocol.transport.sliced_answers import (
    NAMES_A_PIECE,
    PER_CONNECTION_MAX,
    SLICE_MS,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    Pieces,
    SlicedAnswers,
)
from ledgermq.state.errors import ServiceUnavailableError, SystemBusyError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts

_GROUPS = 40
_QUEUES = 70
# What one look at a store takes in these tests.
_LOOK_MS = 0.03


class SlowStore:
    """Queues with ten messages each; a look at one takes some time on the test's clock."""

    def __init__(self) -> None:
        self.clock_ms = 0.0

    def _look(self) -> None:
        self.clock_ms += _LOOK_MS

    def min_offset(self, topic: str, queue_id: int) -> int:
        self._look()
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        self._look()
        return 10

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        self._look()
        return 1_700_000_000_000 + queue_offset if queue_offset >= 0 else None


class SlowSight:
    """Sees what begins so; each look takes some time."""

    key = "some"

    def __init__(self, store: SlowStore, *prefixes: str) -> None:
        self._store = store
        self._prefixes = prefixes or ("",)

    def sees_topic(self, name: str) -> bool:
        self._store.clock_ms += _LOOK_MS
        return name.startswith(self._prefixes)

    sees_group = sees_topic


class Bench:
    """A leader with forty groups that have places in all queues of a topic."""

    def __init__(self) -> None:
        self.parts = parts = Parts().lead()
        parts.state.put_topic(TopicConfig("T", _QUEUES, _QUEUES))
        for number in range(_GROUPS):
            parts.state.put_group(SubscriptionGroup(f"g-{number}"))
            for queue_id in range(_QUEUES):
                parts.state.commits.tell(f"g-{number}", "T", queue_id, queue_id % 10)
        parts.state.commits.propose()
        while parts.turn.waiting:
            parts.turn.end()
        self.store = SlowStore()
        self.sliced = SlicedAnswers(parts.turn.soon, lambda: self.store.clock_ms, SystemBusyError)
        self.groups = GroupOffsetProcessor(
            parts.config,
            parts.leadership,
            parts.state,
            parts.clients,
            cast(Any, self.store),
            get_rate=lambda topic, group: 1.5,
            sliced=self.sliced,
            address="127.0.0.1:10911",
            now_ms=lambda: 1_700_000_001_000,
        )
        self.queries = QueryProcessor(
            parts.config,
            parts.state,
            parts.clients,
            cast(Any, self.store),
            cast(Any, None),
            lambda topic, group: 1.5,
            self.sliced,
        )
        self.connection = cast(Any, ListConnection())
        # The longest of the turns so far, on the test's clock.
        self.longest_ms = 0.0

    def all_stats(self) -> Any:
        header = GetConsumeStatsInBrokerHeader(is_order=False)
        command = RemotingCommand.request(RequestCode.GET_BROKER_CONSUME_STATS, header)
        return self.begin(lambda: self.groups.all_stats(self.connection, command))

    def subscribe(self, group: str, topic: str) -> None:
        """Has a member of a group want a topic."""
        self.parts.clients.register_consumer(
            group, Client(group, 0, 0, "", 0), group, consume_type="", message_model="",
            consume_from_where="", subscriptions=[Subscription(topic, "*", "TAG", 1)],
        )  # fmt: skip

    def long(self) -> Pieces:
        """Three slices of work, the first of which is done when it is asked for."""
        for _ in range(3):
            self.store.clock_ms += SLICE_MS
            yield
        return RemotingCommand(code=0)

    def begin(self, ask: Any) -> Any:
        begun_ms = self.store.clock_ms
        answer = ask()
        self.longest_ms = max(self.longest_ms, self.store.clock_ms - begun_ms)
        return answer

    def finish(self, answer: Any) -> tuple[Any, int]:
        """Returns what an answer ends in, and the turns that it took."""
        ends: list[Any] = []
        if not isinstance(answer, Deferred):
            return answer, 0
        answer.addBoth(ends.append)
        for turn in range(10_000):
            if ends:
                return ends[0], turn
            begun_ms = self.store.clock_ms
            self.parts.turn.end()
            self.longest_ms = max(self.longest_ms, self.store.clock_ms - begun_ms)
        raise AssertionError("no answer in ten thousand turns")

    def stats(self) -> ConsumeStats:
        table = {
            MessageQueue("T", "b", queue_id): ConsumeOffsets(
                10,
                queue_id % 10,
                1_700_000_000_000 + queue_id % 10 - 1 if queue_id % 10 else 0,
                queue_id % 10,
            )
            for queue_id in range(_QUEUES)
        }
        return ConsumeStats(table, 1.5)


# A piece may pass the end of a slice: some looks for each of its queues.
_TURN_MS_MAX = SLICE_MS + QUEUES_A_PIECE * 7 * _LOOK_MS


def test_where_all_groups_stand_is_told_in_slices_and_in_the_same_bytes() -> None:
    bench = Bench()
    answer, turns = bench.finish(bench.all_stats())
    assert turns > 20
    assert bench.longest_ms < _TURN_MS_MAX
    names = [one.name for one in bench.parts.state.groups.all()]
    rows: list[dict[str, list[ConsumeStats]]] = [
        {name: [bench.stats()] if name.startswith("g-") else []} for name in names
    ]
    behind = _GROUPS * sum(10 - queue_id % 10 for queue_id in range(_QUEUES))
    whole = ConsumeStatsList(rows, "127.0.0.1:10911", behind)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.body == whole.encode()


def test_where_one_group_stands_is_told_in_the_same_bytes() -> None:
    bench = Bench()
    header = GetConsumeStatsRequestHeader(consumer_group="g-3")
    command = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, header)
    answer, turns = bench.finish(
        bench.begin(lambda: bench.queries.consume_stats(bench.connection, command))
    )
    assert turns >= 1 and bench.longest_ms < _TURN_MS_MAX
    assert answer.body == bench.stats().encode()


def test_the_ends_of_a_topic_s_queues_are_told_in_the_same_bytes() -> None:
    bench = Bench()
    header = GetTopicStatsInfoRequestHeader(topic="T")
    command = RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, header)
    answer, turns = bench.finish(
        bench.begin(lambda: bench.queries.topic_stats(bench.connection, command))
    )
    assert turns >= 1 and bench.longest_ms < _TURN_MS_MAX
    ends = TopicOffset(0, 10, 1_700_000_000_009)
    table = {MessageQueue("T", "b", queue_id): ends for queue_id in range(_QUEUES)}
    assert answer.body == TopicStatsTable(table).encode()


def test_the_least_offsets_of_groups_are_told_in_slices() -> None:
    bench = Bench()
    header = QueryCorrectionOffsetHeader(filter_groups="g-0", compare_group="g-1", topic="T")
    command = RemotingCommand.request(RequestCode.QUERY_CORRECTION_OFFSET, header)
    answer, turns = bench.finish(
        bench.begin(lambda: bench.groups.corrections(bench.connection, command))
    )
    assert turns >= 20 and bench.longest_ms < _TURN_MS_MAX
    # All groups stand where the compared one does.
    expected = {queue_id: queue_id % 10 for queue_id in range(_QUEUES)}
    assert answer.body == lenient_json.write({"correctionOffsets": expected})


def test_times_of_a_topic_s_queues_are_told_in_slices() -> None:
    bench = Bench()
    header = QueryConsumeTimeSpanRequestHeader(topic="T", group="g-3")
    command = RemotingCommand.request(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
    answer, turns = bench.finish(
        bench.begin(lambda: bench.groups.time_span(bench.connection, command))
    )
    assert turns >= 2 and bench.longest_ms < _TURN_MS_MAX
    assert answer.body.count(b'"consumeTimeStamp":') == _QUEUES
    assert answer.body.startswith(b'{"consumeTimeSpanSet":[{') and answer.body.endswith(b"}]}")


def consumers_of(bench: Bench) -> Any:
    header = QueryTopicConsumeByWhoRequestHeader(topic="T")
    command = RemotingCommand.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    return bench.begin(lambda: bench.queries.consumers_of(bench.connection, command))


def test_who_consumes_a_topic_is_told_in_slices() -> None:
    bench = Bench()
    committed = [f"g-{number}" for number in range(_GROUPS)]
    for name in [*committed[:3], *[f"live-{number:03}" for number in range(300)]]:
        bench.subscribe(name, "T")
    bench.subscribe("other", "U")
    bench.connection.sight = SlowSight(bench.store)
    answer, turns = bench.finish(consumers_of(bench))
    names = GroupList.decode(answer.body).group_list
    assert names == [*sorted(committed), *[f"live-{number:03}" for number in range(300)]]
    assert turns >= 300 // NAMES_A_PIECE
    assert bench.longest_ms < SLICE_MS + NAMES_A_PIECE * _LOOK_MS
    bench.connection.sight = SlowSight(bench.store, "live-")
    answer, _ = bench.finish(consumers_of(bench))
    assert GroupList.decode(answer.body).group_list == names[_GROUPS:]


@pytest.mark.parametrize("asked", ["stats", "clone", "all"])
def test_topics_that_are_not_shown_are_passed_over_in_slices(asked: str) -> None:
    bench = Bench()
    for number in range(300):
        bench.parts.state.put_topic(TopicConfig(f"T-{number}", 1, 1))
        bench.parts.state.commits.tell("g-3", f"T-{number}", 0, 1)
    bench.parts.state.commits.propose()
    bench.connection.sight = SlowSight(bench.store, "g-3", "T-299")
    if asked == "all":
        answer, turns = bench.finish(bench.all_stats())
        groups = ConsumeStatsList.decode(answer.body).consume_stats_list
        (shown,) = [group["g-3"] for group in groups if "g-3" in group]
        assert [len(stats.offset_table) for stats in shown] == [1]
    elif asked == "stats":
        header = GetConsumeStatsRequestHeader(consumer_group="g-3")
        command = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, header)
        answer, turns = bench.finish(
            bench.begin(lambda: bench.queries.consume_stats(bench.connection, command))
        )
        assert len(ConsumeStats.decode(answer.body).offset_table) == 1
    else:
        answer, turns = bench.finish(clone(bench, topic=""))
        assert bench.parts.state.offsets.topics_of("new") == ["T-299"]
    assert answer.code == ResponseCode.SUCCESS
    assert turns >= 300 // NAMES_A_PIECE
    assert bench.longest_ms < SLICE_MS + 2 * NAMES_A_PIECE * _LOOK_MS


def test_what_a_slice_is_enough_for_is_answered_at_once() -> None:
    bench = Bench()
    header = GetConsumeStatsRequestHeader(consumer_group="nobody")
    command = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, header)
    answer = bench.queries.consume_stats(bench.connection, command)
    assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS
    assert answer.body == ConsumeStats({}, 0.0).encode()
    assert not bench.parts.turn.waiting


def test_nothing_more_is_done_for_a_connection_that_is_closed() -> None:
    bench = Bench()
    other = cast(Any, ListConnection())
    bench.all_stats()
    bench.connection.is_open = False
    bench.connection = other
    answer, turns = bench.finish(bench.all_stats())
    assert answer.code == ResponseCode.SUCCESS and len(bench.sliced) == 0
    # The first of the two was left where it stood.
    assert bench.store.clock_ms < 1.2 * (turns + 2) * _TURN_MS_MAX
    assert not bench.parts.turn.waiting


def test_no_more_wait_than_may() -> None:
    bench = Bench()
    for _ in range(PER_CONNECTION_MAX):
        bench.all_stats()
    with pytest.raises(SystemBusyError, match=r"16 requests for long answers wait, 16 of them"):
        bench.all_stats()
    for payer in ("10.0.0.9", "10.0.0.8"):
        while len(bench.sliced) % (WAITING_MAX // 2) or bench.connection.peer_host != payer:
            if len(bench.sliced) % PER_CONNECTION_MAX == 0:
                bench.connection = cast(Any, ListConnection())
                bench.connection.peer_host = payer
            bench.all_stats()
        bench.connection = cast(Any, ListConnection())
        bench.connection.peer_host = payer
        with pytest.raises(SystemBusyError, match=rf"0 of them .* and 128 of {payer}, .* 256 and"):
            bench.all_stats()
    assert len(bench.sliced) == WAITING_MAX
    bench.connection.peer_host = "10.0.0.7"
    with pytest.raises(SystemBusyError, match="256 requests for long answers wait, 0 of them"):
        bench.all_stats()


def test_bodies_that_wait_have_so_many_bytes_and_half_of_them_are_for_one() -> None:
    bench = Bench()

    def ask(size_bytes: int, account: str) -> None:
        bench.connection = cast(Any, ListConnection())
        bench.connection.account = account
        bench.sliced.answer(bench.connection, bench.long(), size_bytes)

    ask(0, "a")
    ask(WAITING_BYTES_MAX // 2, "a")
    with pytest.raises(SystemBusyError, match=f"would have {WAITING_BYTES_MAX // 2 + 1} bytes"):
        ask(1, "a")
    ask(WAITING_BYTES_MAX // 2, "b")
    with pytest.raises(SystemBusyError, match="half of all for each"):
        ask(1, "c")


def test_who_asks_for_one_thing_does_not_wait_for_all_of_another() -> None:
    bench = Bench()
    ends: list[str] = []

    def ask(account: str) -> None:
        bench.connection = cast(Any, ListConnection())
        bench.connection.account = account
        answer = bench.sliced.answer(bench.connection, bench.long())
        assert isinstance(answer, Deferred)
        answer.addCallback(lambda _: ends.append(account))

    for _ in range(20):
        ask("greedy")
    ask("modest")
    ask("modest")
    for _ in range(13):
        bench.parts.turn.end()
    assert ends == ["greedy", "modest", "greedy", "modest"]


def test_what_fails_in_a_later_slice_is_told_and_the_next_goes_on() -> None:
    bench = Bench()

    def pieces() -> Pieces:
        for _ in range(3):
            bench.store.clock_ms += SLICE_MS
            yield
        raise SystemBusyError("as it happens")

    broken = bench.sliced.answer(bench.connection, pieces())
    whole = bench.all_stats()
    failure, _ = bench.finish(broken)
    assert failure.check(SystemBusyError)
    answer, _ = bench.finish(whole)
    assert answer.code == ResponseCode.SUCCESS


def clone(bench: Bench, topic: str = "T") -> Any:
    header = CloneGroupOffsetRequestHeader(
        src_group="g-3", dest_group="new", topic=topic, offline=True
    )
    command = RemotingCommand.request(RequestCode.CLONE_GROUP_OFFSET, header)
    # Each offset that is read takes some time.
    find = bench.parts.state.check_offset

    def check(*arguments: Any) -> None:
        bench.store.clock_ms += 10 * _LOOK_MS
        find(*arguments)

    bench.parts.state.check_offset = check  # type: ignore[method-assign]
    return bench.begin(lambda: bench.groups.clone(bench.connection, command))


def test_offsets_are_cloned_in_slices_and_answered_when_all_are_committed() -> None:
    bench = Bench()
    answer, turns = bench.finish(clone(bench))
    assert turns >= 2 and answer.code == ResponseCode.SUCCESS
    assert bench.longest_ms < SLICE_MS + QUEUES_A_PIECE * 10 * _LOOK_MS
    taken = bench.parts.state.offsets.of_topic("new", "T")
    assert taken == {queue_id: queue_id % 10 for queue_id in range(_QUEUES)}


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_clone_ends_with_the_leadership(leads_again: bool) -> None:
    bench = Bench()
    answer = clone(bench)
    leadership, state = bench.parts.leadership, bench.parts.state
    leadership.changed("FOLLOWER", 2, "n1")
    state.follow()
    if leads_again:
        # What was taken over so far is forgotten: the rest alone would be no clone.
        leadership.changed("LEADER", 3, "n0")
        leadership.serve()
        state.lead("n0/3")
    failure, _ = bench.finish(answer)
    assert failure.check(ServiceUnavailableError)
