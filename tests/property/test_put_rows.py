"""Units of many queues, put by one call: what `ConsumeQueue.put` makes of them one by one, in
memory and, by flushes that may overlap with all else, in their files.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import Changes, DerivedFiles
from ledgermq.commitlog.errors import DispatchError
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.row import Row
from ledgermq.dledger.store.filesystem import RealFileSystem
from tests.kernel_forms import forms_of
from tests.unit.commitlog.flushed import flush

FORMS = forms_of("ledgermq.commitlog.row_loops")
SEGMENT_BYTES = 4 * QUEUE_UNIT_BYTES
QUEUES = 4
forms = pytest.mark.parametrize("loops", FORMS, ids=lambda form: "C" if form.COMPILED else "source")

_turns = st.lists(st.tuples(st.integers(0, QUEUES - 1), st.integers(1, 9)), max_size=5)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _turns),
        st.tuples(st.just("put"), _turns),
        st.tuples(st.sampled_from(["begin", "step", "end", "take_back", "write_out"]), st.none()),
        st.tuples(st.sampled_from(["read", "delete", "cut", "drop"]), st.integers(0, QUEUES - 1)),
    ),
    max_size=20,
)


def unit(offset: int) -> bytes:
    return QUEUE_UNIT.pack(1000 * offset + 1, 100, offset)


def row(queue: ConsumeQueue, offset: int) -> Row:
    return Row(queue, offset, unit(offset), 0, (), None, 7 * offset % 50)


def no_light(row: Row, index: int) -> None:
    raise AssertionError(f"{row} stands in no light queue")


class Folder:
    """Some queues over few open files, and what they must hold."""

    def __init__(self, path: str) -> None:
        self.files = DerivedFiles(RealFileSystem(), 2)
        self.queues = [
            ConsumeQueue("T", number, f"{path}/{number}", self.files, SEGMENT_BYTES)
            for number in range(QUEUES)
        ]
        # The flush under way, and what is left of it.
        self.changes: Changes | None = None
        self.steps: Iterator[Callable[[], None]] = iter(())

    def put(self, loops: ModuleType, turn: list[tuple[int, int]]) -> None:
        ends = [queue.max_offset for queue in self.queues]
        rows = []
        for number, count in turn:
            queue, first = self.queues[number], ends[number]
            ends[number] += count
            rows += [row(queue, offset) for offset in range(first, first + count)]
        latest = max([row.store_timestamp for row in rows], default=0)
        arrivals: list[tuple[str, int, int, int]] = []
        assert loops.put_rows(rows, 0, arrivals, no_light) == ([], latest)
        assert [queue.max_offset for queue in self.queues] == ends
        told = [(queue.topic, queue.queue_id, offset + 1, 0) for queue, offset, *_ in rows if queue]
        assert arrivals == told

    def begin(self) -> None:
        if self.changes is None:
            self.changes = self.files.take()
            self.steps = chain(self.changes.steps(), self.changes.removal_steps())

    def step(self) -> None:
        step = next(self.steps, None)
        if step is not None:
            step()

    def end(self) -> None:
        if self.changes is not None:
            for step in self.steps:
                step()
            self.files.landed(self.changes)
            self.changes = None

    def take_back(self) -> None:
        if self.changes is not None:
            self.files.take_back()
            self.changes, self.steps = None, iter(())

    def write_out(self) -> None:
        if self.changes is None:
            self.files.write_out()

    def change(self, step: str, queue: ConsumeQueue) -> None:
        if step == "read":
            queue.units(queue.min_offset, 100)
        elif step == "delete":
            queue.delete()
        elif step == "cut" and queue.min_offset < queue.max_offset:
            queue.restore(queue.min_offset, queue.max_offset - 1)
        elif step == "drop":
            queue.drop_before(1000 * max(queue.max_offset - 5, 0))

    def check(self) -> None:
        for queue in self.queues:
            held = range(queue.min_offset, queue.max_offset)
            assert queue.units(queue.min_offset, 1000) == b"".join(map(unit, held))

    def check_files(self, path: str) -> None:
        """What another process finds: the queues' segments, no other files, no other bytes."""
        for queue in self.queues:
            directory = Path(path) / str(queue.queue_id)
            names = sorted(os.listdir(directory)) if directory.exists() else []
            assert bool(names) == queue.has_files
            starts = [int(name) for name in names]
            if starts:
                assert starts == list(range(starts[0], starts[-1] + 1, SEGMENT_BYTES))
            if queue.min_offset < queue.max_offset:
                assert starts[0] <= queue.min_offset * QUEUE_UNIT_BYTES
                assert queue.max_offset * QUEUE_UNIT_BYTES <= starts[-1] + SEGMENT_BYTES
            for start in starts:
                content = (directory / f"{start:020d}").read_bytes()
                assert len(content) == SEGMENT_BYTES
                for at in range(0, SEGMENT_BYTES, QUEUE_UNIT_BYTES):
                    offset = (start + at) // QUEUE_UNIT_BYTES
                    found = content[at : at + QUEUE_UNIT_BYTES]
                    if offset >= queue.max_offset:
                        assert found == bytes(QUEUE_UNIT_BYTES)
                    elif offset >= queue.min_offset:
                        assert found == unit(offset)


@forms
@settings(max_examples=150, deadline=None)
@given(steps=_steps)
def test_queues_hold_what_was_put_and_files_what_was_flushed(
    loops: ModuleType, steps: list[tuple[str, object]]
) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for step, detail in steps:
            if isinstance(detail, list):
                folder.put(loops, detail)
            elif isinstance(detail, int):
                folder.change(step, folder.queues[detail])
            else:
                getattr(folder, step)()
            folder.check()
        folder.end()
        flush(folder.files)
        folder.check()
        folder.check_files(path)
        folder.files.close()


@forms
def test_what_fails_leaves_the_rows_before_it_put(loops: ModuleType, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.put(loops, [(0, 1), (1, 1), (2, 1)])
    first, second, third, _ = folder.queues
    with pytest.raises(DispatchError, match="gap"):
        loops.put_rows([row(first, 1), row(second, 8), row(third, 1)], 7, None, no_light)
    assert [queue.max_offset for queue in folder.queues[:3]] == [2, 1, 1]
    folder.files.close()


@forms
def test_unit_of_another_length_is_not_put_the_short_way(loops: ModuleType, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.put(loops, [(0, 1)])
    queue = folder.queues[0]
    lease = folder.files.lease
    assert not queue.add(1, unit(1)[:19], lease)
    assert not queue.add(2, unit(2), lease)
    assert not queue.add(1, unit(1), lease + 1)
    assert queue.max_offset == 1
    assert queue.add(1, unit(1), lease)
    # The segment is full after two more.
    assert queue.add(2, unit(2), lease) and queue.add(3, unit(3), lease)
    assert not queue.add(4, unit(4), lease)
    folder.check()
    folder.files.close()
