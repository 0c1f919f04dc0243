"""Plan: what a change would do; nothing is done before somebody confirms it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from ledgermq.console.answers import TEXT_CHARS_MAX
from ledgermq.http.replies import RequestError

# Of the items of one change.
STEPS_MAX: Final = 100_000
# Of them, what is made in one turn of the loop.
_OF_TURN: Final = 500
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
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Does all steps at once and tells of each; None: they are done one by one.
    run_all: Callable[[Tell], Awaitable[None]] | None = None
    # What it keeps besides its steps, until it has ended: the message that is to be sent.
    held_bytes: int = 0
    # How many steps are in each state.
    counts: Counter[ItemState] = field(init=False, default_factory=Counter)
    # About how many bytes of memory the steps take, and of these what does them.
    _steps_bytes: int = field(init=False, default=0)
    _ready_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        given, self.steps = self.steps, []
        for step in given:
            self.add(step)

    def add(self, step: Step) -> None:
        """Adds a step; its texts do not change any more, but for the reason (`told`).

        Raises:
            RequestError: there are too many.
        """
        if len(self.steps) >= STEPS_MAX:
            message = f"this has more than {STEPS_MAX} items"
            raise RequestError(400, message, field="items", limit=STEPS_MAX)
        self.steps.append(step)
        self.counts[step.state] += 1
        target_bytes = _bytes_of(step.target)
        texts_bytes = target_bytes + _bytes_of(step.before) + _bytes_of(step.after)
        self._steps_bytes += _STEP_BYTES + texts_bytes + _bytes_of(step.reason)
        if step.run is not None:
            # What does it has the name once more.
            ready_bytes = _READY_STEP_BYTES - _STEP_BYTES + target_bytes
            self._steps_bytes += ready_bytes
            self._ready_bytes += ready_bytes

    async def extend(self, steps: Iterable[Step]) -> None:
        """Adds many steps, and lets all others have their turn meanwhile.

        Raises:
            RequestError: as `add`.
        """
        for number, step in enumerate(steps):
            if number % _OF_TURN == 0:
                await asyncio.sleep(0)
            self.add(step)

    def told(self, step: Step, state: ItemState, reason: str = "") -> None:
        """Notes what became of a step; servers may have chosen the reason, which is cut."""
        reason = reason[:TEXT_CHARS_MAX]
        self.counts[step.state] -= 1
        self.counts[state] += 1
        self._steps_bytes += _bytes_of(reason) - _bytes_of(step.reason)
        step.state, step.reason = state, reason

    def size(self) -> int:
        """Returns about how many bytes of memory it takes, with all its steps."""
        texts = [self.summary, self.object, *self.warnings]
        return self.held_bytes + _STEP_BYTES + sum(map(_bytes_of, texts)) + self._steps_bytes

    def let_go(self) -> None:
        """Nothing of it will be done any more: only what there is to tell is kept."""
        self.run_all, self.held_bytes = None, 0
        self._steps_bytes -= self._ready_bytes
        self._ready_bytes = 0
        for step in self.steps:
            step.run = step.look = None


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text) * _CHAR_BYTES
