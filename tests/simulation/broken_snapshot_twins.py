"""Mistakes with snapshots of the state and with files, planted into the product."""

from dataclasses import replace
from typing import Any

from ledgermq.dledger.store import filesystem
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.state import sweep
from ledgermq.state.machine import StateMachine
from ledgermq.testing.simulation import disk
from tests.simulation.broken_twins import Patch


def later_parts_replace_the_earlier() -> list[Patch]:
    """Each part of an entry counts as the whole entry."""
    original = StateMachine._take_part

    def take_part(self: Any, part: Any, index: int) -> Any:
        if part.after is None and part.table == "offsets":
            self.offsets.remove(list(part.put))
        return original(self, part, index)

    return [(StateMachine, "_take_part", take_part)]


def first_part_replaces_the_entry() -> list[Patch]:
    """What the next parts tell is forgotten until they come."""
    original = StateMachine._take_part

    def take_part(self: Any, part: Any, index: int) -> Any:
        return original(self, replace(part, goes_on=False), index)

    return [(StateMachine, "_take_part", take_part)]


def snapshot_without_cursors() -> list[Patch]:
    original = sweep.sweep_body

    def body(part: Any, *rest: Any) -> bytes:
        return original(replace(part, progress=None), *rest)

    return [(sweep, "sweep_body", body)]


def steps_without_room_begun_twice() -> list[Patch]:
    """The steps that failed leave the queue when the next ones have begun."""

    def failed(self: Any, failure: Any, waiter: Any) -> None:
        self._failed(failure, waiter)
        self._steps.popleft()

    return [(Keeper, "_steps_failed", failed)]


def replaced_before_the_sync() -> list[Patch]:
    """The file beside has the name before its content is on disk."""

    def replace_file(device: Any, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        written = device.write_new(temporary, data)
        device.rename(temporary, path)
        written.sync()
        device.sync_directory(path.rpartition("/")[0])

    return [(filesystem, "replace_file", replace_file), (disk, "replace_file", replace_file)]


def replaced_without_a_sync_of_the_name() -> list[Patch]:
    original = filesystem.replace_file

    class Shy:
        """A disk on which no directory is synced by a replacement."""

        def __init__(self, device: Any) -> None:
            self.write_new, self.rename, self.remove = (
                device.write_new,
                device.rename,
                device.remove,
            )

        def sync_directory(self, directory: str) -> None:
            """Left out."""

    def replace_file(device: Any, path: str, data: bytes) -> None:
        original(Shy(device), path, data)

    return [(filesystem, "replace_file", replace_file), (disk, "replace_file", replace_file)]
