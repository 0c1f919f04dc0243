"""Whatever a committed record of the state holds, every member does the same with it, none ends,
and all that was taken from it can be written: to files, clients, name servers and the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from ledgermq.broker.storage.state_files import (
    encode_text,
    format_pretty,
    parse_tolerant,
    pretty_slices,
)
from ledgermq.commitlog import UnreadRecordError
from ledgermq.protocol import lenient_json
from ledgermq.protocol.group_settings import GroupSettings
from ledgermq.protocol.route import TopicConfigTableBody
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import InvalidRequestError
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.property.hostile_records import Records
from tests.unit.broker.parts import Parts

RECORDS = 2500


def tables_of(state: BrokerState) -> dict[str, Any]:
    return {
        "topics": state.topics,
        "groups": state.groups,
        "offsets": state.offsets,
        "locks": state.locks,
        "rules": state.access_record,
    }


def content(state: BrokerState) -> str:
    """Returns all of the state, so that two are equal when they say the same."""
    tables = {name: dict(table.behind("")) for name, table in tables_of(state).items()}
    versions = [state.topics.version.to_json(), state.groups.version.to_json()]
    return json.dumps([tables, versions, state.progress.to_json()], sort_keys=True)


@contextmanager
def logged(lines: list[str]) -> Iterator[None]:
    """Collects what is logged meanwhile."""

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield
    finally:
        globalLogPublisher.removeObserver(observe)


def apply(parts: Parts, body: bytes, index: int) -> bool:
    """Applies a record; returns whether the program is too old for it."""
    try:
        parts.state.apply(body, index)
    except UnreadRecordError:
        return False
    return True


def filled(seed: int, settings: dict[str, str] | None = None) -> Parts:
    parts = Parts(**(settings or {}))
    records = Records(seed)
    for index in range(RECORDS):
        apply(parts, records.body(), index)
    return parts


@pytest.mark.parametrize("seed", range(4))
def test_no_content_of_a_record_ends_a_member(seed: int) -> None:
    one, other = Parts(), Parts(enableLmq="true")
    records, read = Records(seed), 0
    for index in range(RECORDS):
        body = records.body()
        is_read = apply(one, body, index)
        assert apply(other, body, index) == is_read
        read += is_read
        if index % 500 == 0:
            assert content(one.state) == content(other.state)
    assert content(one.state) == content(other.state)
    rejected = one.state.formats.rejected.count
    assert rejected == other.state.formats.rejected.count
    # The draw reaches each outcome often.
    assert 50 < rejected < RECORDS // 2 and RECORDS // 2 < read < RECORDS
    assert all(len(table.document().whole()) for table in tables_of(one.state).values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("settings", [{}, {"enableLmq": "true"}])
def test_files_hold_all_that_records_brought(seed: int, settings: dict[str, str]) -> None:
    written = filled(seed, settings)
    read = Parts(**settings)
    for name, table in tables_of(written.state).items():
        text = format_pretty(table.document().whole())
        assert "".join(pretty_slices(table.document(), 64)) == text
        value = parse_tolerant(encode_text(text).decode("utf-8"))
        tables_of(read.state)[name].load_json(value)
    progress = format_pretty(written.state.progress.to_json())
    read.state.progress.load_json(parse_tolerant(encode_text(progress).decode("utf-8")))
    assert content(read.state) == content(written.state)


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_holds_all_that_records_brought(seed: int) -> None:
    leader, fresh = filled(seed).lead(is_prompt=False), Parts()
    for index, body in enumerate(leader.sweep()):
        fresh.state.apply(body, index)
    assert fresh.state.formats.rejected.count == 0
    assert fresh.state.sweep_index == 0
    for name, table in tables_of(leader.state).items():
        assert dict(table.behind("")) == dict(tables_of(fresh.state)[name].behind("")), name


@pytest.mark.parametrize("seed", range(3))
def test_clients_and_name_servers_can_read_it(seed: int) -> None:
    state = filled(seed).state
    for table in (state.topics, state.groups, state.offsets):
        body = lenient_json.write(table.document().whole())
        assert lenient_json.read(body)
    topics = lenient_json.write(state.topics.document().whole())
    assert TopicConfigTableBody.decode(topics).topic_config_table.keys() == set(
        state.topics.names()
    )
    for topic in state.topics.all():
        lenient_json.write_plain(topic.to_json())
    lenient_json.write_plain(state.topics.version.next(1).to_json())


def offsets_record(offset: object, queues: int = 1) -> dict[str, Any]:
    return {"kind": "offsets", "put": {"T@g": dict.fromkeys(map(str, range(queues)), offset)}}


@pytest.mark.parametrize("offset", [True, 1.0, -1, 2**63, 10**400, None, "1", float("nan")])
def test_an_offset_is_a_number_of_64_bits(offset: object) -> None:
    """A boolean once became the word "True" in the file of a pair with very many queues."""
    parts = Parts()
    record = {"v": 1, **offsets_record(offset, 3000)}
    parts.state.apply(json.dumps(record).encode(), 0)
    assert parts.state.offsets.of_topic("g", "T") == {}
    text = "".join(pretty_slices(parts.state.offsets.document(), 1 << 16))
    assert parse_tolerant(text) == {"offsetTable": {"T@g": {}}}


LONE = "\ud800"
NO_TEXT = [
    {"kind": "topics", "put": {LONE: {}, "T": {"attributes": {LONE: "x", "y": LONE}}}},
    {"kind": "groups", "put": {LONE: {}, "g": {"attributes": {LONE: "x"}}}},
    {"kind": "groups", "put": {"g": {"subscriptionDataSet": [{"topic": LONE}]}}},
    {"kind": "offsets", "put": {f"{LONE}@g": {"0": 1}, f"T@{LONE}": {"0": 1}}},
    {
        "kind": "locks",
        "put": {"g": [[LONE, "b", 1, "c"], ["t", LONE, 1, "c"], ["t", "b", 1, LONE]]},
    },
    {"kind": "locks", "put": {LONE: [["t", "b", 1, "c"]]}},
    {"kind": "access", "changed": 1, "sealed": LONE},
]


@pytest.mark.parametrize("record", NO_TEXT, ids=lambda record: f"{record['kind']}")
def test_half_a_surrogate_pair_gets_into_no_table(record: dict[str, Any]) -> None:
    parts = Parts()
    parts.state.apply(json.dumps({"v": 1, **record}).encode(), 0)
    assert LONE not in json.dumps(content(parts.state), ensure_ascii=False)
    assert "ud800" not in content(parts.state)


def test_a_file_of_a_former_program_brings_none_either() -> None:
    state = Parts().state
    state.topics.load_json({"topicConfigTable": {LONE: {}, "T": {"perm": 6}}})
    state.groups.load_json({"subscriptionGroupTable": {LONE: {}, "g": {}}})
    state.offsets.load_json({"offsetTable": {f"{LONE}@g": {"0": 1}, "T@g": {"0": 2}}})
    state.locks.load_json({"lockTable": {"g": [["T", "b", 1, LONE], ["T", "b", 2, "c"]]}})
    assert state.topics.names() == ["T"] and state.groups.names() == ["g"]
    assert state.offsets.all() == {"T@g": {0: 2}} and len(state.locks) == 1


def deep_record(depth: int) -> bytes:
    return b'{"v":1,"kind":"expired","put":%b{}%b}' % (b'{"T@g":' * depth, b"}" * depth)


def test_depth_is_limited_before_the_interpreter_limits_it() -> None:
    """How deep a parser goes depends on the interpreter: members may have different ones."""
    parts = Parts()
    for depth in (1, 20):
        parts.state.apply(deep_record(depth), 0)
    assert parts.state.formats.rejected.count == 0
    for count, depth in enumerate((40, 500, 100_000), 1):
        parts.state.apply(deep_record(depth), 0)
        assert parts.state.formats.rejected.count == count


def test_a_rejected_record_is_counted_logged_and_shown() -> None:
    parts, lines = Parts(), list[str]()
    with logged(lines):
        for index in range(5):
            parts.state.apply(b"{}", 40 + index)
    assert len(lines) == 3
    assert lines[0] == (
        "cannot apply a record of the broker's state: it has no version (first version 1) (index"
        " 40, 2 bytes, 1 rejected since the start); it changes nothing on any member"
    )
    assert parts.state.formats.describe()["stateRecordsRejected"] == "5"


def test_a_fault_of_a_decoder_rejects_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, value: Any) -> Any:
        raise LookupError(name)

    parts = Parts()
    monkeypatch.setattr(TopicConfig, "from_json", fail)
    parts.state.apply(b'{"v":1,"kind":"topics","put":{"T":{}},"removed":["U"]}', 7)
    assert parts.state.formats.rejected.count == 1 and parts.removed_topics == []


def test_a_lack_of_memory_is_no_fault_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another member, or the next start, applies it: this one must not go on without."""

    def fail(name: str, value: Any) -> Any:
        raise MemoryError

    parts = Parts()
    monkeypatch.setattr(TopicConfig, "from_json", fail)
    with pytest.raises(MemoryError):
        parts.state.apply(b'{"v":1,"kind":"topics","put":{"T":{}}}', 7)


def test_nothing_is_proposed_that_would_not_be_applied() -> None:
    leader = Parts().lead(is_prompt=False)
    state, queue = leader.state, QueueKey("T", "b", 1)
    for topic, member in (
        (TopicConfig(LONE), "name"),
        (TopicConfig("T", topic_sys_flag=2**31), "topicSysFlag"),
        (TopicConfig("T", attributes={"a": LONE}), "attributes"),
        (TopicConfig("T", permission=8), "perm"),
    ):
        with pytest.raises(InvalidRequestError, match=f": {member} is "):
            state.check_topic(topic, None)
    with pytest.raises(InvalidRequestError, match=": retryMaxTimes is 2147483648"):
        state.check_group(SubscriptionGroup("g", retries_max=2**31), None)
    settings = GroupSettings(attributes={"a": LONE})
    with pytest.raises(InvalidRequestError, match=": attributes is "):
        state.check_group(SubscriptionGroup("g", settings=settings), None)
    with pytest.raises(InvalidRequestError, match="cannot lock"):
        state.lock_requests.lock("g", [queue], LONE, lambda held, error: None)
    with pytest.raises(InvalidRequestError, match="cannot store an offset of 'T@"):
        state.commits.tell(LONE, "T", 0, 1)
    state.write_offsets()
    assert leader.written == []
