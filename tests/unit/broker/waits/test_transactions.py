"""The walk over half messages: who is asked, when, how often, and that nothing ends twice."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ledgermq.broker.records.half_messages import (
    HALF_GROUP,
    HalfMessage,
    account_mark,
    committed_message,
    ended_offsets,
    half_from,
    half_message,
    op_message,
    renewed,
    resumed,
)
from ledgermq.broker.sends.waiting import Done
from ledgermq.broker.waits.transactions import Rules, Transactions
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import decode_record, encode_record
from ledgermq.state import names
from ledgermq.state.errors import BrokerError, CommitTimeoutError, SystemBusyError
from ledgermq.state.queue_progress import HALF_QUEUE, Run
from tests.unit.broker.parts import HOST, Parts

RULES = Rules(
    check_interval_ms=60_000,
    immunity_ms=6000,
    checks_max=3,
    age_max_ms=3_600_000,
    body_bytes_max=1000,
)
Delivered = Callable[[Sequence[AppendResult], BrokerError | None], None]


class Log:
    """Queues of records in memory; what is appended is there at once, unless it is held back."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench
        self.records: list[bytes] = []
        self.units: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.holds_back = False
        self.held: list[Callable[[BrokerError | None], None]] = []

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.units.get((topic, queue_id), []))

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> Sequence[tuple[int, int, int]]:
        return self.units.get((topic, queue_id), [])[offset : offset + count_max]

    def record_at(self, physical_offset: int) -> bytes | None:
        return self.records[physical_offset]

    def store(self, messages: Sequence[AppendMessage]) -> list[AppendResult]:
        results = []
        for message in messages:
            units = self.units.setdefault((message.topic, message.queue_id), [])
            place = len(self.records)
            record = encode_record(
                message.topic.encode(), message.queue_id, message.flag, len(units), place,
                message.sys_flag, message.born_timestamp, message.born_host, self._bench.wall_ms,
                message.store_host, message.reconsume_times, message.prepared_transaction_offset,
                message.body, message.properties,
            )  # fmt: skip
            self.records.append(record)
            units.append((place, len(record), 0))
            result = AppendResult(place, place, len(record), len(units) - 1, self._bench.wall_ms)
            results.append(result)
        return results

    def append(
        self, runs: Sequence[Run], messages: Sequence[AppendMessage], delivered: Delivered
    ) -> None:
        self._take(messages, lambda results, error: delivered(results or [], error))

    def add_own(self, messages: Sequence[AppendMessage], done: Done) -> None:
        self._take(messages, done)

    def _take(self, messages: Sequence[AppendMessage], done: Done) -> None:
        def finish(error: BrokerError | None) -> None:
            if error is None:
                done(self.store(messages), None)
            else:
                done(None, error)

        if self.holds_back:
            self.held.append(finish)
        else:
            finish(None)

    def release(self, error: BrokerError | None = None) -> None:
        held, self.held = self.held, []
        for finish in held:
            finish(error)

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        units = self.units.get((topic, queue_id), [])
        return [decode_record(self.records[place]).body for place, _, _ in units]


class Bench:
    """Transactions with everything around them."""

    def __init__(self) -> None:
        self.parts = Parts().lead()
        self.now_ms = self.parts.now_ms
        # By how much the wall clock was set ahead.
        self.jump_ms = 0
        self.log = Log(self)
        self.soon: list[Callable[[], None]] = []
        self.asked: list[tuple[bytes, int]] = []
        self.transactions = Transactions(
            self.log,
            self.parts.state,
            self.log,
            self.log,
            self._ask,
            RULES,
            HOST,
            has_room=lambda: True,
            now_ms=lambda: self.wall_ms,
            expiry_ms=lambda: self.now_ms,
            soon=self.soon.append,
        )
        self.transactions.run()

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.jump_ms

    def _ask(self, half: HalfMessage, copy: AppendMessage, result: AppendResult) -> None:
        self.asked.append((copy.body, result.queue_offset))

    def send(
        self,
        body: bytes,
        *,
        born_ms: int | None = None,
        account: str | None = None,
        **properties: str,
    ) -> HalfMessage:
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        born_ms = self.now_ms if born_ms is None else born_ms
        plain = AppendMessage("Real", 3, 1, 5, born_ms, HOST, HOST, 0, 0, body, text.encode())
        [result] = self.log.store([half_message(plain, account)])
        half = half_from(self.log.records[result.physical_offset])
        assert half is not None
        return half

    def end(self, half: HalfMessage, *, commits: bool = True) -> list[BrokerError | None]:
        told: list[BrokerError | None] = []
        message = committed_message(half) if commits else None
        self.transactions.end(half, message, told.append)
        return told

    def copy_of(self, half: HalfMessage) -> HalfMessage:
        """The newest record with the same body."""
        units = self.log.units[(names.HALF_TOPIC, 0)]
        copies = [half_from(self.log.records[place]) for place, _, _ in units]
        return [copy for copy in copies if copy and copy.record.body == half.record.body][-1]

    def walk(self, after_ms: int = 60_000) -> None:
        """Lets time pass and walks to the end of a round."""
        self.now_ms += after_ms
        self.transactions.run()
        while self.soon:
            self.soon.pop()()
        # As each second.
        self.parts.state.write_offsets()

    @property
    def cursor(self) -> int:
        return self.parts.state.progress.cursor(HALF_QUEUE)

    def lead_again(self) -> None:
        self.parts.state.write_offsets()
        self.parts.state.follow()
        self.parts.state.lead("n0/2")


def test_committed_message_goes_to_its_real_topic_once() -> None:
    bench = Bench()
    half = bench.send(b"paid", A="b")
    assert bench.end(half) == [None]
    assert bench.end(half) == [None]
    assert bench.log.bodies("Real", 3) == [b"paid"]
    assert bench.log.bodies(names.HALF_DONE_TOPIC) == [b"0"]
    bench.walk()
    assert bench.asked == [] and bench.cursor == 1
    offsets = bench.parts.state.offsets
    assert offsets.find(HALF_GROUP, names.HALF_TOPIC, 0) == 1
    assert offsets.find(HALF_GROUP, names.HALF_DONE_TOPIC, 0) == 1


def test_producer_is_asked_about_what_is_old_enough() -> None:
    bench = Bench()
    bench.send(b"old")
    bench.walk(54_000)
    assert bench.asked == []
    bench.now_ms += 5999
    bench.send(b"young")
    bench.walk(1)
    assert bench.asked == [(b"old", 2)]
    assert bench.cursor == 1
    # Once in a round: the copy is of this round.
    bench.walk(1000)
    assert len(bench.asked) == 1
    bench.walk()
    assert bench.asked[1:] == [(b"young", 3), (b"old", 4)]


def test_producer_is_asked_where_the_times_of_the_log_are_ahead() -> None:
    """They never fall: a leader whose clock is behind stores with times that lie ahead of it."""
    bench = Bench()
    bench.jump_ms = 365 * 86_400_000
    bench.send(b"pinned", born_ms=bench.now_ms)
    bench.jump_ms = 0
    bench.walk()
    assert bench.asked == [(b"pinned", 1)]
    bench.walk()
    assert bench.asked == [(b"pinned", 1), (b"pinned", 2)]


def test_message_that_is_asked_about_too_often_is_put_aside() -> None:
    bench = Bench()
    half = bench.send(b"lost")
    for _ in range(3):
        bench.walk()
    assert len(bench.asked) == 3
    assert bench.copy_of(half).check_count == 3
    bench.walk()
    assert bench.log.bodies(names.HALF_EXPIRED_TOPIC) == [b"lost"]
    bench.walk()
    assert len(bench.asked) == 3 and bench.cursor == 4
    [(place, _, _)] = bench.log.units[(names.HALF_EXPIRED_TOPIC, 0)]
    again = resumed(decode_record(bench.log.records[place]))
    assert again is not None and again.topic == names.HALF_TOPIC
    assert resumed(half.record) is None


def test_message_older_than_retention_is_put_aside_at_once() -> None:
    bench = Bench()
    bench.send(b"ancient")
    bench.walk(RULES.age_max_ms + 1)
    assert bench.asked == [] and bench.log.bodies(names.HALF_EXPIRED_TOPIC) == [b"ancient"]


def test_wall_clock_that_is_set_ahead_puts_nothing_aside() -> None:
    bench = Bench()
    bench.send(b"open")
    bench.jump_ms = 1000 * RULES.age_max_ms
    for _ in range(2):
        bench.walk()
    assert [body for body, _ in bench.asked] == [b"open"] * 2
    assert bench.log.bodies(names.HALF_EXPIRED_TOPIC) == []
    bench.walk(RULES.age_max_ms)
    assert bench.log.bodies(names.HALF_EXPIRED_TOPIC) == [b"open"]


def test_half_message_from_a_client_whose_clock_is_far_behind_is_not_old() -> None:
    bench = Bench()
    half = bench.send(b"open", born_ms=bench.now_ms - 2 * RULES.age_max_ms)
    bench.walk(0)
    assert bench.log.bodies(names.HALF_EXPIRED_TOPIC) == []
    assert bench.end(half) == [None]


def test_time_of_immunity_is_kept_and_the_first_offset_known() -> None:
    bench = Bench()
    half = bench.send(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    bench.walk()
    assert bench.asked == []
    copy = bench.copy_of(half)
    assert (copy.prepared_offset, copy.check_count, copy.record.queue_offset) == (0, 0, 1)
    assert bench.end(half) == [None]
    bench.walk()
    assert bench.asked == [] and bench.log.bodies("Real", 3) == [b"slow"]
    assert bench.cursor == 2
    other = bench.send(b"other", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    bench.walk()
    assert bench.asked == [(b"other", 3)]
    assert bench.copy_of(other).prepared_offset is None


def test_late_end_of_the_first_half_ends_its_copy() -> None:
    bench = Bench()
    half = bench.send(b"m")
    bench.walk()
    copy = bench.copy_of(half)
    assert bench.end(half) == [None]
    assert bench.end(copy) == [None]
    assert bench.log.bodies("Real", 3) == [b"m"]
    bench.walk()
    assert len(bench.asked) == 1 and bench.cursor == 2


def walk_on_its_way() -> tuple[Bench, HalfMessage, list[BrokerError | None]]:
    """An end comes while the copy of its half message is on its way."""
    bench = Bench()
    half = bench.send(b"m")
    bench.log.holds_back = True
    bench.walk()
    bench.log.holds_back = False
    told = bench.end(half)
    assert told == [] and bench.log.bodies("Real", 3) == []
    return bench, half, told


def test_end_that_comes_while_the_copy_is_on_its_way_ends_the_copy() -> None:
    bench, half, told = walk_on_its_way()
    again = bench.end(half)
    bench.log.release()
    assert told == again == [None]
    assert bench.log.bodies("Real", 3) == [b"m"]
    assert bench.log.bodies(names.HALF_DONE_TOPIC) == [b"%d" % 1]
    # Whoever leads next finds the copy ended: the message was stored twice when an end that was
    # answered named the original, and the leader was lost before it could name the copy.
    bench.lead_again()
    bench.walk(1)
    bench.walk()
    assert len(bench.asked) == 1 and bench.cursor == 2
    assert bench.log.bodies("Real", 3) == [b"m"]


def test_end_that_waits_for_a_copy_that_is_not_stored_ends_the_original() -> None:
    bench, _, told = walk_on_its_way()
    bench.log.release(SystemBusyError("full"))
    assert told == [None]
    assert bench.log.bodies(names.HALF_DONE_TOPIC) == [b"0"]


def test_end_that_waits_for_a_copy_that_nobody_knows_of_fails() -> None:
    bench, _, told = walk_on_its_way()
    error = CommitTimeoutError("no majority")
    bench.log.release(error)
    assert told == [error] and bench.log.bodies("Real", 3) == []


def test_end_that_waits_fails_with_the_leadership() -> None:
    bench, _, told = walk_on_its_way()
    bench.parts.state.follow()
    error = SystemBusyError("no leader")
    bench.log.release(error)
    assert told == [error] and bench.log.bodies("Real", 3) == []


def test_ends_that_wait_have_a_limit() -> None:
    bench, half, told = walk_on_its_way()
    for _ in range(1023):
        bench.end(half)
    with pytest.raises(SystemBusyError, match="1024 ends wait"):
        bench.end(half)
    bench.log.release()
    assert told == [None] and bench.log.bodies("Real", 3) == [b"m"]


def test_new_leader_knows_what_former_ones_ended() -> None:
    bench = Bench()
    first, second = bench.send(b"1"), bench.send(b"2")
    bench.end(first)
    bench.lead_again()
    # Nothing was passed yet, so the records are read before an end is taken.
    assert bench.end(first) == [None]
    assert bench.log.bodies("Real", 3) == [b"1"]
    assert bench.end(second, commits=False) == [None]
    bench.walk()
    assert bench.asked == [] and bench.cursor == 2
    assert bench.log.bodies("Real", 3) == [b"1"]


def test_new_leader_knows_which_copies_belong_together() -> None:
    """The producer still knows its message by the first offset, which the walk has passed."""
    bench = Bench()
    half, other = bench.send(b"1", UNIQ_KEY="A"), bench.send(b"2", UNIQ_KEY="B")
    bench.walk()
    bench.walk()
    copy = bench.copy_of(half)
    assert copy.check_count == 2
    bench.lead_again()
    assert bench.end(half) == [None]
    assert bench.end(copy) == [None]
    assert bench.end(half) == [None]
    assert bench.log.bodies("Real", 3) == [b"1"]
    del bench.asked[:]
    bench.walk(1)
    bench.walk()
    assert [body for body, _ in bench.asked] == [b"2"]
    # Its newest copy is one of this leader.
    assert bench.end(other) == [None]
    bench.walk()
    assert len(bench.asked) == 1 and bench.log.bodies("Real", 3) == [b"1", b"2"]


def test_unique_key_of_another_account_names_none_of_its_copies() -> None:
    """An end by the thief's own half message once ended the other one after a change of leaders."""
    bench = Bench()
    own = bench.send(b"stolen", account="thief", UNIQ_KEY="A")
    bench.send(b"paid", account="shop", UNIQ_KEY="A")
    bench.walk()
    victim = bench.copy_of(bench.send(b"x")), bench.log.bodies(names.HALF_TOPIC)
    assert victim[1].count(b"paid") == 2
    bench.lead_again()
    assert bench.end(own, commits=False) == [None]
    shops = [
        offset for offset, body in enumerate(bench.log.bodies(names.HALF_TOPIC)) if body == b"paid"
    ]
    ended = [int(text) for text in bench.log.bodies(names.HALF_DONE_TOPIC)]
    assert ended and not set(ended) & set(shops)


def test_account_of_a_half_message_stays_with_it_and_reaches_no_consumer() -> None:
    bench = Bench()
    half = bench.send(
        b"paid", account="shop", LEDGERMQ_ACCOUNT="thief", TRANSACTION_CHECK_TIMES="14",
        TRAN_PREPARED_QUEUE_OFFSET="0", A="b",
    )  # fmt: skip
    assert half.account_mark == account_mark("shop") and not half.is_copy
    bench.walk()
    copy = bench.copy_of(half)
    assert copy.check_count == 1 and copy.account_mark == account_mark("shop")
    properties = decode_properties(committed_message(copy).properties)
    assert "LEDGERMQ_ACCOUNT" not in properties and properties["A"] == "b"
    assert bench.send(b"open", LEDGERMQ_ACCOUNT="thief").account_mark is None


def test_end_without_a_copy_that_is_open_is_stored() -> None:
    """A message that was put aside, or whose producer gave it no key."""
    bench = Bench()
    half, aside = bench.send(b"no key"), bench.send(b"aside", UNIQ_KEY="A")
    for _ in range(RULES.checks_max + 1):
        bench.walk()
    assert names.HALF_EXPIRED_TOPIC in {topic for topic, _ in bench.log.units}
    bench.lead_again()
    assert bench.end(half) == [None] and bench.end(aside) == [None]
    assert bench.log.bodies("Real", 3) == [b"no key", b"aside"]


def test_new_leader_knows_the_copy_of_a_time_of_immunity_by_its_first_offset() -> None:
    bench = Bench()
    half = bench.send(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    bench.walk()
    copy = bench.copy_of(half)
    bench.lead_again()
    assert bench.end(half) == [None]
    bench.walk(1)
    bench.walk()
    assert bench.asked == [] and bench.cursor == 2
    assert bench.end(copy) == [None]
    assert bench.log.bodies("Real", 3) == [b"slow"]


def test_place_of_an_upstream_leader_is_taken_over() -> None:
    bench = Bench()
    for number in range(3):
        bench.send(b"%d" % number)
    bench.parts.state.offsets.put({f"{names.HALF_TOPIC}@{HALF_GROUP}": {0: 2}})
    bench.lead_again()
    bench.walk(1)
    bench.walk()
    assert [body for body, _ in bench.asked] == [b"2"]


def test_end_that_was_not_stored_may_come_again() -> None:
    bench = Bench()
    half = bench.send(b"m")
    bench.log.holds_back = True
    told = bench.end(half)
    error = SystemBusyError("full")
    bench.log.release(error)
    assert told == [error]
    bench.log.holds_back = False
    assert bench.end(half) == [None]
    assert bench.log.bodies("Real", 3) == [b"m"]


def test_second_end_is_told_when_the_first_is_committed() -> None:
    bench = Bench()
    half = bench.send(b"m")
    bench.log.holds_back = True
    told = [bench.end(half), bench.end(half)]
    assert told == [[], []]
    bench.log.release()
    assert told == [[None], [None]] and bench.log.bodies("Real", 3) == [b"m"]


def test_second_end_is_not_taken_for_done_when_the_first_may_be_lost() -> None:
    bench = Bench()
    half = bench.send(b"m")
    bench.log.holds_back = True
    bench.end(half)
    bench.log.release(CommitTimeoutError("no majority"))
    with pytest.raises(SystemBusyError, match="may commit yet"):
        bench.end(half)
    bench.log.store([op_message(0, HOST, bench.now_ms)])  # It commits after all.
    assert bench.end(half) == [None]


def test_failed_walk_is_repeated_and_one_that_may_commit_is_not() -> None:
    bench = Bench()
    bench.send(b"m")
    bench.log.holds_back = True
    bench.walk()
    bench.log.release(SystemBusyError("full"))
    assert bench.cursor == 0
    bench.walk(1001)
    bench.log.release(CommitTimeoutError("no majority"))
    assert bench.cursor == 1


def test_walk_of_a_lost_leadership_changes_nothing() -> None:
    bench = Bench()
    bench.send(b"m")
    bench.log.holds_back = True
    bench.walk()
    bench.lead_again()
    bench.log.release(SystemBusyError("no leader"))
    assert bench.cursor == 0 and bench.asked == []


def test_records_say_what_upstream_says() -> None:
    bench = Bench()
    half = bench.send(b"m", A="b", TAGS="t")
    final = committed_message(half)
    assert (final.topic, final.queue_id, final.sys_flag) == ("Real", 3, 9)
    assert final.prepared_transaction_offset == half.record.physical_offset
    assert final.properties == half.record.properties
    again = renewed(half, is_asked=True)
    assert (again.topic, again.queue_id, again.sys_flag) == (names.HALF_TOPIC, 0, 1)
    assert decode_properties(again.properties) == {
        "A": "b", "TAGS": "t", "REAL_TOPIC": "Real", "REAL_QID": "3",
        "TRANSACTION_CHECK_TIMES": "1",
    }  # fmt: skip
    ended = op_message(17, HOST, 5)
    assert (ended.topic, ended.queue_id, ended.body) == (names.HALF_DONE_TOPIC, 0, b"17")
    assert decode_properties(ended.properties) == {"TAGS": "d", "WAIT": "true"}


@pytest.mark.parametrize(
    ("body", "tag", "offsets"),
    [
        (b"7", "d", (7,)),
        (b"7,8,9", "d", (7, 8, 9)),
        (b"7,,x,-1", "d", (7,)),
        (b"7", "other", ()),
        (b"\xff", "d", ()),
    ],
)
def test_ends_are_read_as_every_broker_writes_them(
    body: bytes, tag: str, offsets: tuple[int, ...]
) -> None:
    record = encode_record(
        b"O", 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, body, f"TAGS\x01{tag}".encode()
    )
    assert ended_offsets(record) == offsets
    assert ended_offsets(b"no record") == ()


def other_record(**changes: Any) -> bytes:
    fields = {"topic": names.HALF_TOPIC, "properties": "REAL_TOPIC\x01T\x02REAL_QID\x010"}
    fields |= changes
    return encode_record(
        fields["topic"].encode(), 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, b"",
        fields["properties"].encode(),
    )  # fmt: skip


def test_only_half_messages_are_taken_for_such() -> None:
    assert half_from(other_record()) is not None
    assert half_from(other_record(topic="Real")) is None
    assert half_from(other_record(properties="REAL_TOPIC\x01T")) is None
    assert half_from(b"") is None


def test_open_transactions_are_counted_when_it_is_known_which_have_ended() -> None:
    bench = Bench()

    def count() -> list[int | None]:
        return [part for part in bench.transactions.count_open() if part is not None]

    halves = [bench.send(b"%d" % number) for number in range(4)]
    assert count() == [4]
    bench.end(halves[0])
    bench.end(halves[2], commits=False)
    assert count() == []
    bench.walk(0)
    assert count() == [2]
    bench.lead_again()
    assert count() == []
    bench.walk()
    assert count() == [2]
