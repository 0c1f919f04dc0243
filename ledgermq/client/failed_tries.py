"""What a log says of a message whose listener failed: which it was, and what comes next."""

from datetime import UTC, datetime
from typing import Final

from ledgermq.client.delays import DELAYS_S
from ledgermq.client.messages import ReceivedMessage
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.plain_text import escaped

# Of a message that failed once: what brokers take where the consumer names no delay.
_FIRST_RETRY_LEVEL: Final = 3
# As Java's default for a message that fails again and again.
RECONSUME_TIMES_MAX: Final = 16
_CHARS_SHOWN: Final = 128


class FailedTries:
    """Counts the tries that brokers do not count, those of one queue in order."""

    def __init__(self, mode: str, reconsume_times_max: int | None, orderly_pause_s: float) -> None:
        """Has seen nothing yet.

        Args:
            mode: of the consumer.
            reconsume_times_max: as in its settings.
            orderly_pause_s: as in its settings.
        """
        self._mode = mode
        self._times_max = reconsume_times_max
        self._pause_s = orderly_pause_s
        # Queue -> offset and tries of the message that it waits for.
        self._tries: dict[MessageQueue, tuple[int, int]] = {}

    def told(self, message: ReceivedMessage, now_ms: int) -> str:
        """Returns a sentence about a try that failed; of one message each call counts one."""
        return f"{described(message)}, {self._what_comes(message, now_ms)}"

    def _what_comes(self, message: ReceivedMessage, now_ms: int) -> str:
        if self._mode == "broadcast":
            return "which does not come again"
        if self._mode == "orderly":
            return self._in_order(message, now_ms)
        times_max = RECONSUME_TIMES_MAX if self._times_max is None else self._times_max
        times = message.reconsume_times
        which = f"try {times + 1} of {times_max + 1}"
        if times >= times_max:
            return f"{which}, it goes to the dead letters"
        level = min(_FIRST_RETRY_LEVEL + times, len(DELAYS_S))
        return f"{which}, {_next(DELAYS_S[level - 1], now_ms)}"

    def _in_order(self, message: ReceivedMessage, now_ms: int) -> str:
        offset, tries = self._tries.get(message.queue, (-1, 0))
        tries = tries + 1 if offset == message.queue_offset else 1
        self._tries[message.queue] = (message.queue_offset, tries)
        if self._times_max is None:
            return f"try {tries}, {_next(self._pause_s, now_ms)}; its queue waits"
        which = f"try {tries} of {self._times_max + 1}"
        if tries > self._times_max:
            return f"{which}, it goes to the dead letters"
        return f"{which}, {_next(self._pause_s, now_ms)}; its queue waits"


def described(message: ReceivedMessage) -> str:
    """Returns id, keys and place of a message in one line; a sender wrote most of it."""
    keys = message.keys
    shown = f" with keys {keys[:_CHARS_SHOWN]!r}" if keys else ""
    queue = message.queue
    place = f"{queue.broker_name}/{queue.queue_id}@{message.queue_offset}"
    return escaped(f"{message.message_id}{shown} of {message.topic} at {place}")


def _next(pause_s: float, now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000 + pause_s, UTC)
    return f"next in {pause_s:g} s, at {moment.isoformat(timespec='seconds')}"
