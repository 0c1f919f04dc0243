"""DiskJob: a piece of work at the disk, cut in two where the thread changes.

    begin_...()   reactor          the tables change, and what is to be done is taken down
    job.run()     keeper's thread  writes, syncs, makes and removes files, and waits for the disk
    job.end()     reactor          what was done counts from now on

A job carries all that its run needs: file objects, paths, numbers. It reads no table that the
reactor changes, and the reactor reads nothing that a run changes before its end. So what a sync
proves was taken down in the same step as what it syncs, and neither can be had without the other.

Whoever has no reactor (an opening, a tool, a test) does both parts at once: `do`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Optional


def _no_end() -> None:
    """Nothing counts anew."""


@dataclass(frozen=True, slots=True)
class DiskJob:
    """One job; it is run once, and ended once when its run returned."""

    # Raises OSError when nobody knows what is on the disk now, and DiskFullError when all is as
    # before, so that the job may be tried again.
    run: Callable[[], None]
    # Returns a second job, to be run before any other, or None.
    end: Callable[[], Optional["DiskJob"]] = _no_end

    def do(self) -> None:
        """Runs and ends the job, and what follows from it, in the thread of the caller."""
        job: DiskJob | None = self
        while job is not None:
            job.run()
            job = job.end()


# Called in the reactor when the disk is free: takes down what is to be done by then; None: nothing.
Begin = Callable[[], DiskJob | None]


def do_now(job: DiskJob | None) -> None:
    """Does a job in the thread of the caller; None: there is nothing to do."""
    if job is not None:
        job.do()


def joined(jobs: Iterable[DiskJob | None]) -> DiskJob | None:
    """Returns one job that runs these in their order, and then ends them; None when none is left.

    None of them may name a second job.
    """
    parts = [job for job in jobs if job is not None]
    if not parts:
        return None

    def run() -> None:
        for job in parts:
            job.run()

    def end() -> None:
        for job in parts:
            following = job.end()
            assert following is None, "a joined job names no second one"

    return DiskJob(run, end)
