"""SendSpans: messages whose sender is traced, from their append to their commit.

Asked once for each turn that appended something, and once for each that committed something: a
message that carries no context costs one look for its mark. At most as many are noted as the
budget allows; a message that is lost with its leader ends with an error.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledgermq.broker.telemetry.budget import Budget
from ledgermq.broker.telemetry.contexts import MARK, Carried, find_sampled
from ledgermq.commitlog import AppendMessage, AppendResult

# Noted and not committed yet; more are left out.
_NOTED_MAX: Final = 1000


class Stored(NamedTuple):
    """A traced message that was appended; times are monotonic, in ms.

    Attributes:
        carried: context of its sender.
        topic, queue_id: as stored: a delayed message waits in a topic of its own.
        index: of its entry.
        physical_offset, queue_offset: of its record.
        body_bytes: of its body.
        read_ms: when the first message of its turn had been read.
        checked_ms: when all had been checked, and the append began.
        appended_ms: when they were in the log.
    """

    carried: Carried
    topic: str
    queue_id: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of it
    physical_offset: int
    queue_offset: int
    body_bytes: int
    read_ms: float
    checked_ms: float
    appended_ms: float


# Gets a message, when it was over, and what went wrong, empty when it is stored.
Tell = Callable[[Stored, float, str], None]


class SendSpans:
    """The traced messages that wait for their commit, in the order of their index."""

    def __init__(self, tell: Tell, budget: Budget, clock_ms: Callable[[], float]) -> None:
        """Begins with none.

        Args:
            tell: makes the span.
            budget: of all spans of this broker.
            clock_ms: monotonic time.
        """
        self._tell, self._budget, self._clock_ms = tell, budget, clock_ms
        self._noted: deque[Stored] = deque()

    def appended(
        self,
        messages: Sequence[AppendMessage],
        results: Sequence[AppendResult],
        read_ms: float,
        checked_ms: float,
        now_ms: float,
    ) -> None:
        """Notes the traced ones among the messages of a turn."""
        for message, result in zip(messages, results, strict=True):
            if MARK not in message.properties or len(self._noted) >= _NOTED_MAX:
                continue
            carried = find_sampled(message.properties)
            if carried is None or not self._budget.take(now_ms):
                continue
            self._noted.append(
                Stored(
                    carried,
                    message.topic,
                    message.queue_id,
                    result.index,
                    result.physical_offset,
                    result.queue_offset,
                    len(message.body),
                    read_ms,
                    checked_ms,
                    now_ms,
                )
            )

    def committed(self, end_index: int) -> None:
        """Ends those below an index: they are stored."""
        noted = self._noted
        if not noted or noted[0].index >= end_index:
            return
        now_ms = self._clock_ms()
        while noted and noted[0].index < end_index:
            self._tell(noted.popleft(), now_ms, "")

    def failed(self, error: str) -> None:
        """Ends all: nobody here will know what becomes of them."""
        now_ms = self._clock_ms()
        while self._noted:
            self._tell(self._noted.popleft(), now_ms, error)
