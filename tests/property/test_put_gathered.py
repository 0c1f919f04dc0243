"""Units of many queues, put by one call: what `ConsumeQueue.put` makes of them one by one, into
files that are open and known to the next flush.
"""

import tempfile
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.errors import DispatchError
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.open_files import OpenFiles
from ledgermq.dledger.store.filesystem import RealFileSystem
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.commitlog.row_loops")
SEGMENT_BYTES = 4 * QUEUE_UNIT_BYTES
QUEUES = 4
forms = pytest.mark.parametrize("loops", FORMS, ids=lambda form: "C" if form.COMPILED else "source")

_turns = st.lists(st.tuples(st.integers(0, QUEUES - 1), st.integers(1, 9)), max_size=5)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _turns),
        st.tuples(st.just("put"), _turns),
        st.tuples(st.sampled_from(["begin", "end", "reopen"]), st.none()),
        st.tuples(st.sampled_from(["read", "delete", "cut", "drop"]), st.integers(0, QUEUES - 1)),
    ),
    max_size=20,
)


def unit(offset: int) -> bytes:
    return QUEUE_UNIT.pack(1000 * offset + 1, 100, offset)


class Folder:
    """Some queues over few open files, what they must hold, and what the next flush must sync."""

    def __init__(self, path: str) -> None:
        self.files = OpenFiles(RealFileSystem(), 2)
        self.queues = [
            ConsumeQueue("T", number, f"{path}/{number}", self.files, SEGMENT_BYTES)
            for number in range(QUEUES)
        ]
        self.in_flush = False
        self.written: set[str] = set()

    def put(self, loops: ModuleType, turn: list[tuple[int, int]]) -> None:
        touched = []
        for number, count in turn:
            queue = self.queues[number]
            if not queue.gathered:
                touched.append(queue)
            first = queue.gathered_end
            queue.gathered += [unit(offset) for offset in range(first, first + count)]
            queue.gathered_end += count
            start = first * QUEUE_UNIT_BYTES // SEGMENT_BYTES * SEGMENT_BYTES
            stop = queue.gathered_end * QUEUE_UNIT_BYTES
            self.written |= {
                f"{queue._directory}/{at:020d}" for at in range(start, stop, SEGMENT_BYTES)
            }
        loops.put_gathered(touched, 0)
        assert all(queue.max_offset == queue.gathered_end for queue in touched)
        assert not any(queue.gathered for queue in touched)

    def begin(self) -> None:
        if not self.in_flush:
            self.files.take_dirty()
            self.in_flush, self.written = True, set()

    def end(self) -> None:
        if self.in_flush:
            self.files.synced()
            self.in_flush = False

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


@forms
@settings(max_examples=150, deadline=None)
@given(steps=_steps)
def test_queues_hold_what_was_put_and_the_next_flush_knows_the_files(
    loops: ModuleType, steps: list[tuple[str, object]]
) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for step, detail in steps:
            if isinstance(detail, list):
                folder.put(loops, detail)
            elif isinstance(detail, int):
                folder.change(step, folder.queues[detail])
            elif step == "reopen":
                folder.files.close()
                folder.in_flush, folder.written = False, set()
                folder.files.synced()
            else:
                getattr(folder, step)()
        folder.end()
        is_there = {name for name in folder.written if Path(name).exists()}
        known = set(folder.files._dirty)
        folder.check()
        folder.files.close()
        assert is_there <= known


@forms
def test_what_fails_leaves_the_queues_before_it_with_theirs(
    loops: ModuleType, tmp_path: Path
) -> None:
    folder = Folder(str(tmp_path))
    folder.put(loops, [(0, 1), (1, 1), (2, 1)])
    for queue in folder.queues[:3]:
        queue.gathered, queue.gathered_end = [unit(1)], 2
    folder.queues[1].gathered_end = 9
    with pytest.raises(DispatchError, match="gap"):
        loops.put_gathered(folder.queues[:3], 7)
    assert [queue.max_offset for queue in folder.queues[:3]] == [2, 1, 1]
    folder.files.close()
