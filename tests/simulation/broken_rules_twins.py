"""Mistakes with rules of access control and with deliveries, planted into the product's classes."""

from collections.abc import Iterator
from typing import Any

from ledgermq.state.access_changes import AccessChanges
from ledgermq.state.access_record import AccessRecord
from ledgermq.state.queue_progress import QueueProgress
from tests.simulation.broken_twins import Patch


def rules_in_force_when_proposed() -> list[Patch]:
    """The leader goes by its change at once, as if nothing could come between."""
    original = AccessChanges._begin

    def begin(self: Any, record: Any, done: Any) -> None:
        self.rules.follow(record)
        original(self, record, done)

    return [(AccessChanges, "_begin", begin)]


def sweeps_without_rules() -> list[Patch]:
    def behind(self: Any, after: str) -> Iterator[tuple[str, Any]]:
        return iter(())

    return [(AccessRecord, "behind", behind)]


def rules_of_sweeps_passed_over() -> list[Patch]:
    """Only a change counts; who has not seen it goes without."""

    def replace_range(self: Any, after: str, upto: str | None, put: Any) -> bool:
        return False

    return [(AccessRecord, "replace_range", replace_range)]


def plans_that_do_not_count() -> list[Patch]:
    """Only the leader that wrote a plan knows what it has delivered."""

    def planned(self: Any, runs: Any, index: int) -> None:
        pass

    return [(QueueProgress, "planned", planned)]


def deliveries_by_former_cursors() -> list[Patch]:
    """A leader goes on with what it planned when it led before, lost or not."""
    original = QueueProgress.lead

    def lead(self: Any) -> None:
        known = getattr(self, "planted_cursors", None)
        original(self)
        if known is not None:
            self._cursors = known

    def follow(self: Any) -> None:
        if self._cursors is not None:
            self.planted_cursors = self._cursors
        self._cursors = None

    return [(QueueProgress, "lead", lead), (QueueProgress, "follow", follow)]
