"""Plan: what a change would do; nothing is done before somebody confirms it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal

# Of a step, besides its texts: with what does it, and without.
_READY_STEP_BYTES: Final = 1024
_STEP_BYTES: Final = 384
# A character that is not ASCII has up to so many bytes.
_CHAR_BYTES: Final = 4

ItemState = Literal["will", "waiting", "done", "skipped", "failed", "unknown"]


class SkippedError(Exception):
    """An item is left alone; the text says why."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One thing that is done."""

    target: str
    before: str = ""
    after: str = ""
    # Does it; returns what there is to tell. Raises SkippedError to leave it alone.
    run: Callable[[], Awaitable[str]] | None = None
    # Returns what is now, to be compared with `before`.
    look: Callable[[], Awaitable[str]] | None = None
    state: ItemState = "will"
    reason: str = ""


# Told of target, state and reason of an item as it ends.
Tell = Callable[[str, ItemState, str], None]


@dataclass(slots=True, kw_only=True)
class Plan:
    """A change."""

    summary: str
    # What the audit log names it by.
    object: str
    steps: list[Step]
    warnings: list[str] = field(default_factory=list)
    # Does all steps at once and tells of each; None: they are done one by one.
    run_all: Callable[[Tell], Awaitable[None]] | None = None
    # What it keeps besides its steps, until it has ended: the message that is to be sent.
    held_bytes: int = 0

    def size(self) -> int:
        """Returns about how many bytes of memory it takes, with all its steps."""
        texts = [self.summary, self.object, *self.warnings]
        total = self.held_bytes + _STEP_BYTES + sum(map(len, texts)) * _CHAR_BYTES
        for step in self.steps:
            is_ready = step.run is not None
            # What does it has the name once more.
            chars = len(step.target) * (1 + is_ready) + len(step.reason)
            chars += len(step.before) + len(step.after)
            is_plain = (
                step.target.isascii()
                and step.before.isascii()
                and step.after.isascii()
                and step.reason.isascii()
            )
            total += chars if is_plain else chars * _CHAR_BYTES
            total += _READY_STEP_BYTES if is_ready else _STEP_BYTES
        return total

    def let_go(self) -> None:
        """Nothing of it will be done any more: only what there is to tell is kept."""
        self.run_all, self.held_bytes = None, 0
        for step in self.steps:
            step.run = step.look = None
