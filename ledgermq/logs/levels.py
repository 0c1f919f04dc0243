"""Levels: from which level on events are written, by namespace; changeable while a program runs.

A change ends by itself: who looks for a fault at night must not find a full disk in the morning.
The longest namespace that an event lies in decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.logger import ILogFilterPredicate, LogEvent, LogLevel, PredicateResult
from zope.interface import implementer

# Twisted's levels are constants of a package without types.
Level = Any

# How long a change holds.
CHANGED_S: Final = 900.0
CHANGES_MAX: Final = 64
NAMESPACE_CHARS_MAX: Final = 200
LEVELS: Final[dict[str, Level]] = {level.name: level for level in LogLevel.iterconstants()}


class LevelError(ValueError):
    """A change that is not taken; says which name, value or limit."""


@implementer(ILogFilterPredicate)
class Levels:
    """The levels of one program; the reactor's thread changes them, any thread asks."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._fixed: dict[str, Level] = {"": LogLevel.info}
        # Level and end of each change, by namespace; replaced as a whole, as other threads read it.
        self._changed: dict[str, tuple[Level, float]] = {}

    def fix(self, namespace: str, level: str) -> None:
        """Sets what holds while nothing is changed."""
        self._fixed[namespace] = LEVELS[level]

    def change(self, namespace: str, level: str) -> None:
        """Has events of a namespace written from a level on, for `CHANGED_S`.

        Raises:
            LevelError: no such level, no such name, or too many changes.
        """
        self.check_all({namespace: level})
        now_s = self._seconds()
        changed = {name: one for name, one in self._changed.items() if one[1] > now_s}
        changed[namespace] = LEVELS[level], now_s + CHANGED_S
        self._changed = changed

    def check_all(self, levels: Mapping[str, str]) -> None:
        """Checks changes, level by namespace, without making them.

        Raises:
            LevelError: no such level, no such name, or too many changes.
        """
        for namespace, level in levels.items():
            if level not in LEVELS:
                raise LevelError(f"level is {level[:50]!r}, allowed are {', '.join(LEVELS)}")
            if not 0 < len(namespace) <= NAMESPACE_CHARS_MAX:
                raise LevelError(
                    f"a namespace of {len(namespace)} characters, allowed are 1 to"
                    f" {NAMESPACE_CHARS_MAX}"
                )
        count = len(self.changes().keys() | levels.keys())
        if count > CHANGES_MAX:
            raise LevelError(f"{count} changed levels, allowed are {CHANGES_MAX}")

    def toggle(self, namespace: str) -> str:
        """Changes to debug, or ends the change that there is; returns the level in force."""
        if namespace in self.changes():
            self._changed = {name: one for name, one in self._changed.items() if name != namespace}
        else:
            self.change(namespace, LogLevel.debug.name)
        return str(self.level_of(namespace).name)

    def changes(self) -> dict[str, tuple[str, float]]:
        """Returns level and seconds left of each change, by namespace."""
        now_s = self._seconds()
        return {
            name: (level.name, end_s - now_s)
            for name, (level, end_s) in self._changed.items()
            if end_s > now_s
        }

    def level_of(self, namespace: str) -> Level:
        """Returns from which level on events of a namespace are written."""
        changed, now_s = self._changed, self._seconds() if self._changed else 0.0
        name = namespace
        while True:
            one = changed.get(name)
            if one is not None and one[1] > now_s:
                return one[0]
            if name in self._fixed:
                return self._fixed[name]
            name = name.rpartition(".")[0]

    def __call__(self, event: LogEvent) -> Any:
        """Tells Twisted whether to write an event (ILogFilterPredicate)."""
        level = event.get("log_level")
        if level is None or level < self.level_of(event.get("log_namespace") or ""):
            return PredicateResult.no
        return PredicateResult.maybe


# Of this process: its log is one.
PROCESS_LEVELS: Final = Levels()
