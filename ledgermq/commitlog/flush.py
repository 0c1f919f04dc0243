"""A flush of the derived files: write and sync what was made, then say so in the checkpoint.

Three parts, because a disk may be waited for: `begin_flush` in the reactor takes the state as it
is, the steps in the keeper's thread do all that touches a file, `landed` in the reactor lets go of
what is in the files now. Between them dispatch may go on: what it makes meanwhile belongs to the
next flush. Commit point: the replaced checkpoint file. Files that nothing names any more go after
it, so a checkpoint never names one that is gone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ledgermq.commitlog.checkpoint import Checkpoints, DispatchMark, StateMark
from ledgermq.commitlog.derived_files import Changes, DerivedFiles
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.queues import ConsumeQueues


@dataclass(frozen=True, slots=True)
class FlushJob:
    """One flush under way; its steps may be taken in another thread."""

    # What will be durable.
    mark: DispatchMark
    changes: Changes
    _checkpoints: Checkpoints
    # Whether the mark is to be written; if not, what the former one names is not removed.
    is_marked: bool = True

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield what is to be done, in order: write and sync each file, write the checkpoint, and
        remove files.

        A step that raises OSError is final for this replica, as what is on disk is not known any
        more; after DiskFullError all of it may be done again. The former checkpoint still stands.
        """
        yield from self.changes.steps()
        if self.is_marked:
            yield partial(self._checkpoints.write, self.mark)
            yield from self.changes.removal_steps()

    def run(self) -> None:
        """Take all steps at once; blocks."""
        for step in self.steps():
            step()


def begin_flush(mark: DispatchMark, files: DerivedFiles, checkpoints: Checkpoints) -> FlushJob:
    """Return the flush that makes `mark` true; `files.landed()` must follow its steps."""
    return FlushJob(mark, files.take(), checkpoints)


def mark_of(
    dispatcher: Dispatcher,
    queues: ConsumeQueues,
    key_index: KeyIndex,
    *,
    is_clean: bool,
    state: tuple[int, StateMark | None],
) -> DispatchMark:
    """Return the mark of what is dispatched now.

    Args:
        is_clean: whether nothing is dispatched behind it.
        state: where the last whole sweep begins, and what is true of the state's files.
    """
    return DispatchMark(
        index=dispatcher.dispatched_index,
        term=dispatcher.dispatched_term,
        end_position=dispatcher.dispatched_position,
        timestamp=dispatcher.dispatched_timestamp,
        is_clean=is_clean,
        queues=queues.bounds(),
        key_index=key_index.mark(),
        index_timestamp=key_index.full_timestamp,
        state_index=state[0],
        state=state[1],
    )
