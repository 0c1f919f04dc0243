"""Listening: a consumer's listener, and what became of its calls.

Every call is timed and counted by topic, for those who look after consumers from outside.
"""

import logging
import time
from dataclasses import dataclass

from ledgermq.client.hooks import Hooks
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.tracing import Tracer
from ledgermq.client.user_function import UserFunction

_log = logging.getLogger("ledgermq.client")


@dataclass(slots=True)
class Tally:
    """Calls of one topic since the start."""

    consumed_count: int = 0
    failed_count: int = 0
    # Time of all calls.
    busy_ms: float = 0.0


class Listening:
    """Calls a listener."""

    def __init__(
        self,
        group: str,
        function: UserFunction[None],
        tracer: Tracer | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._group = group
        self._function = function
        self._tracer = tracer
        self._hooks = hooks
        # By topic.
        self.tallies: dict[str, Tally] = {}

    async def consume(self, message: ReceivedMessage) -> Exception | None:
        """Calls the listener; returns None when the message is consumed, else the error."""
        begun_s = time.perf_counter()
        failure: Exception | None = None
        delivery = None if self._tracer is None else self._tracer.begin(message)
        try:
            if self._hooks is None:
                await self._function.call(message)
            else:
                with self._hooks.consume(message, self._group):
                    await self._function.call(message)
        except Exception as error:
            failure = error
            _log.warning("listener of %s failed on %r", self._group, message, exc_info=True)
        if self._tracer is not None:
            self._tracer.end(delivery, failure)
        tally = self.tallies.get(message.record.topic)
        if tally is None:
            tally = self.tallies[message.record.topic] = Tally()
        tally.busy_ms += (time.perf_counter() - begun_s) * 1000
        if failure is None:
            tally.consumed_count += 1
        else:
            tally.failed_count += 1
        return failure

    def close(self) -> None:
        """Ends the threads that a plain listener ran in."""
        self._function.close()
