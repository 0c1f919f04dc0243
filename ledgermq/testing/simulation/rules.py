"""The rules of access control that a simulated member goes by: those that the state tells it."""

from collections.abc import Mapping
from typing import Any

_Record = Mapping[str, Any]


class SimRules:
    """The rules that one process goes by."""

    alarm = None

    def __init__(self) -> None:
        """Nobody may do anything yet."""
        self.in_force: _Record | None = None

    def follow(self, record: _Record) -> None:
        """Goes by others from now on, unless they are older."""
        if self.in_force is None or record["changed"] > self.in_force["changed"]:
            self.in_force = record

    def to_record(self) -> _Record | None:
        """Returns what is in force."""
        return self.in_force

    def reload(self) -> bool:
        """Nobody edits a file."""
        return False
