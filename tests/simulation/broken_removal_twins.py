"""Mistakes with removals of many offsets and with unreadable records, planted into the product."""

from typing import Any

from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.group_settings import GroupSettings
from ledgermq.state import formats
from ledgermq.state.removals import Removals
from tests.simulation.broken_twins import Patch


def removals_that_hide_nothing() -> list[Patch]:
    """Offsets of a topic that comes back are there until they are dropped."""
    return [(Removals, "hides", lambda self, key: False)]


def removals_that_take_later_pairs() -> list[Patch]:
    """What is committed for a topic that came back goes with the former offsets."""
    return [(Removals, "note_written", lambda self, key: None)]


def second_removal_that_counts_as_the_first() -> list[Patch]:
    """A topic that is removed while it is being dropped keeps what was committed in between."""
    original = Removals._begin

    def begin(self: Any, name: str, keys: Any) -> None:
        if name not in self.numbers:
            original(self, name, keys)

    return [(Removals, "_begin", begin)]


def content_that_ends_members() -> list[Patch]:
    """What a decoder raises on content goes up, to whatever applies the record."""
    original = GroupSettings.kept.__func__  # type: ignore[attr-defined]

    def kept(cls: Any, value: Any) -> Any:
        if "\ud800" in value.get("attributes", {}):
            raise ProtocolError("no UTF-8")
        return original(cls, value)

    return [(formats, "_CONTENT_ERRORS", ()), (GroupSettings, "kept", classmethod(kept))]
