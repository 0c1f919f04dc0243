"""The loops that make rows give what `RowMaker` gives without them, whatever the bytes are."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.commitlog import rows
from ledgermq.commitlog.config import DEFAULT_DELAYS_MS, StoreConfig
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.dledger_commit_log import AppendedRun, DLedgerCommitLog
from ledgermq.commitlog.encoding import AppendMessage
from ledgermq.commitlog.queue_offsets import QueueOffsets
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.store_times import StoreTimes
from ledgermq.dledger.entry import EntryCodec, EntrySlice
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import encode_record
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.commitlog.row_loops")
HEAD = b"h" * 5
AT_MS = 1_700_000_000_005
V4 = (bytes((127, 0, 0, 1)), 10911)
V6 = (bytes(range(16)), 10911)

_names = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"XTAGS", b"INNER_MULTI_DISPATCH", b"K", b""]
)
_values = st.one_of(
    st.sampled_from(
        [
            b"",
            b"a b",
            b"b a b b",
            b"a",
            b" ",
            b"3",
            b"%LMQ%a,%LMQ%b",
            b"TAGS",
            b"A" * 32,
            b"INNER_MULT",
        ]
    ),
    st.binary(max_size=6),
)
_blocks = st.lists(st.tuples(_names, _values), max_size=6).map(
    lambda pairs: b"\x02".join(name + b"\x01" + value for name, value in pairs)
)
_delayed = st.sampled_from([b"DELAY\x013", b"DELAY\x01x\x02TAGS\x01T"])
_properties = st.one_of(
    _blocks, _delayed, _blocks.map(lambda block: block + b"\x02"), st.binary(max_size=40)
)
_records = st.builds(
    lambda topic, queue_id, offset, sys_flag, born, stored, body, properties: encode_record(
        topic, queue_id, 0, offset, 4711, sys_flag, AT_MS, born, AT_MS, stored, 0, 0, body,
        properties,
    ),
    st.sampled_from([b"T", b"Watched", b"SCHEDULE_TOPIC_XXXX", b"a/b", b"%LMQ%a", b""]),
    st.sampled_from([0, 1, -1, 2**31 - 1]),
    st.sampled_from([0, 7, -1, 2**63 - 1, -(2**63)]),
    st.sampled_from([0, 1, 0x4, 0x8, 0xC, -(2**31)]),
    st.sampled_from([V4, V6]),
    st.sampled_from([V4, V4, V6]),
    st.binary(max_size=9),
    _properties,
)  # fmt: skip
# Where in a record a byte is changed, and to what.
_flips = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)


def _maker(*, index_enabled: bool = True) -> RowMaker:
    files = DerivedFiles(RealFileSystem(), 10)
    queues = ConsumeQueues(RealFileSystem(), "/nowhere", files, 6_000_000)
    maker = RowMaker(queues, delays_ms=DEFAULT_DELAYS_MS, index_enabled=index_enabled)
    maker.watch("Watched")
    return maker


def _outcome(call: Callable[[], Any]) -> Any:
    """What a call gives: queues by their names, as those of another maker are other objects."""
    try:
        made = call()
    except RemoteProtocolError as error:
        return str(error)
    names = [(row.queue.topic, row.queue.queue_id) if row.queue else None for row in made]
    light = [[(queue.topic, at) for queue, at in row.light] for row in made]
    return [type(row) for row in made], names, light, [row[1:7] for row in made]


@pytest.fixture(autouse=True)
def _rows_without_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.row_loops, "COMPILED", False)


def _spoiled(record: bytes, flips: list[tuple[int, int]], cut: int) -> bytes:
    data = bytearray(record)
    for at, value in flips:
        data[at % len(data)] = value
    return bytes(data[: len(data) - cut])


@pytest.mark.parametrize("loops", FORMS, ids=lambda form: "source" if not form.COMPILED else "C")
@settings(max_examples=300)
@given(
    st.lists(st.tuples(_records, _flips, st.sampled_from([0, 0, 0, 1, 50, 90])), max_size=3),
    st.booleans(),
    st.integers(-3, 3),
)
def test_rows_are_those_of_the_row_maker(
    loops: ModuleType, parts: list[Any], index_enabled: bool, lie: int
) -> None:
    data, starts, stops = b"", [], []
    for record, flips, cut in parts:
        starts.append(len(data))
        data += HEAD + _spoiled(record, flips, cut)
        stops.append(len(data))
    if stops and not _is_behind(data, stops[-1] + lie):
        stops[-1] += lie
    maker, other = _maker(index_enabled=index_enabled), _maker(index_enabled=index_enabled)
    made = _outcome(lambda: loops.rows_between(data, starts, stops, len(HEAD), maker))
    assert made == _outcome(lambda: other.rows_between(data, starts, stops, len(HEAD)))


def _is_behind(data: bytes, stop: int) -> bool:
    """Whether a stop lies behind the data: no caller gives such a one."""
    return stop > len(data)


@pytest.mark.parametrize("loops", FORMS, ids=lambda form: "source" if not form.COMPILED else "C")
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(-9, 400), st.integers(-9, 400))))
def test_bounds_that_lie_are_refused(
    loops: ModuleType, data: bytes, bounds: list[tuple[int, int]]
) -> None:
    starts, stops = [at for at, _ in bounds], [at for _, at in bounds]
    try:
        rows_made = loops.rows_between(data, starts, stops, 0, _maker())
    except RemoteProtocolError:
        return
    assert len(rows_made) == len(bounds)


_messages = st.builds(
    lambda topic, queue_id, sys_flag, body, properties: AppendMessage(
        topic, queue_id, 0, sys_flag, AT_MS, V4, V4, 0, 0, body, properties
    ),
    st.sampled_from(["T", "Watched", "SCHEDULE_TOPIC_XXXX", "%LMQ%a"]),
    st.integers(0, 1),
    st.sampled_from([0, 1, 0x4, 0x8, 0xC]),
    st.binary(max_size=9),
    _properties,
)


class _Ledger:
    """Gives each message's record a place, a run in each of two segments."""

    commit_index = -1

    def __init__(self, cut: int) -> None:
        self._cut = cut
        self.store = self
        self.end_position, self.segment_bytes = 0, 1 << 20

    def propose(self, bodies: list[bytes]) -> list[EntrySlice]:
        codec, slices, first = EntryCodec(crc32c, 28), [], 0
        for part in (bodies[: self._cut], bodies[self._cut :]):
            if part:
                slices.append(
                    codec.encode(
                        part, first_index=first, term=3, position=first << 20, previous_chain_crc=0
                    )
                )
                first += len(part)
        return slices


def _append(messages: list[AppendMessage], cut: int, *, has_light: bool) -> Any:
    """What an append returns, and what dispatch gets of it."""
    maker, runs = _maker(), list[AppendedRun]()
    offsets = QueueOffsets(maker._queues, maker)
    offsets.open()
    offsets.told_in_segment = 0
    limits = StoreConfig(root="/nowhere", has_light_queues=has_light)
    ledger: Any = _Ledger(cut)
    log = DLedgerCommitLog(ledger, offsets, StoreTimes(lambda: AT_MS), limits, maker, runs.append)
    results = log.append(messages)
    heads = [(run.first_index, run.term, run.position) for run in runs]
    return results, heads, [_outcome(lambda run=run: run.rows) for run in runs]


@pytest.mark.parametrize("loops", FORMS, ids=lambda form: "source" if not form.COMPILED else "C")
@settings(max_examples=200)
@given(st.lists(_messages, max_size=4), st.integers(0, 4), st.booleans())
def test_leader_makes_the_same_rows_by_the_loop(
    loops: ModuleType, messages: list[AppendMessage], cut: int, has_light: bool
) -> None:
    plain = _append(messages, cut, has_light=has_light)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows.row_loops, "COMPILED", True)
        patch.setattr(rows.row_loops, "appended_rows", loops.appended_rows)
        assert _append(messages, cut, has_light=has_light) == plain
