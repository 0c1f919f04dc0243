"""What a flush does with the files of queues and key index, in one call: for tests only."""

from collections.abc import Callable, Iterator

from ledgermq.commitlog.derived_files import DerivedFiles


def flush(files: DerivedFiles) -> None:
    """Write and sync all that is only in memory, and remove what is not needed any more."""
    changes = files.take()
    run(changes.steps())
    run(changes.removal_steps())
    files.landed(changes)


def run(steps: Iterator[Callable[[], None]]) -> None:
    """Take all steps, one after the other."""
    for step in steps:
        step()
