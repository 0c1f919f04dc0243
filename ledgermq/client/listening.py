"""Listening: a consumer's listener, and what became of its calls.

Every call is timed and counted by topic, for those who look after consumers from outside.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ledgermq.client.errors import ClientError
from ledgermq.client.failed_tries import FailedTries, described
from ledgermq.client.hooks import Hooks, Metrics, guarded
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.outcome import DONE, Kind, Outcome, failed
from ledgermq.client.tracing import Tracer
from ledgermq.client.user_function import UserFunction
from ledgermq.protocol.errors import RemoteProtocolError

_log = logging.getLogger("ledgermq.client")


@dataclass(slots=True)
class Tally:
    """Messages of one topic since the start."""

    consumed_count: int = 0
    failed_count: int = 0
    # Time of all calls.
    busy_ms: float = 0.0


class Listening:
    """Calls a listener."""

    def __init__(
        self,
        group: str,
        function: UserFunction[object],
        tracer: Tracer | None = None,
        hooks: Hooks | None = None,
        *,
        metrics: Metrics | None = None,
        batch_max: int | None = None,
        tries: FailedTries | None = None,
    ) -> None:
        """Calls nothing yet.

        Args:
            group: for the log.
            function: of the user; returns nothing, or what became of messages.
            tracer: told of begin and end of each delivery.
            hooks: what a call runs in.
            metrics: told of each message.
            batch_max: messages of one call at most; None calls with one message, not with a list.
            tries: tells what becomes of a message that failed; None does not know.
        """
        self._group = group
        self._function = function
        self._tracer = tracer
        self._hooks = hooks
        self._has_told_of_hooks = False
        self._tries = tries
        self._metrics = guarded(metrics)
        self._is_batch = batch_max is not None
        # Nobody follows single calls.
        self._is_lean = not self._is_batch and tracer is None and hooks is None and metrics is None
        self.batch_max = batch_max or 1
        # By topic.
        self.tallies: dict[str, Tally] = {}

    async def consume(self, messages: Sequence[ReceivedMessage]) -> Sequence[Outcome] | None:
        """Calls the listener with messages, one where it takes no batches.

        Returns:
            None when all are consumed, else what became of each, in their order.
        """
        begun_s = time.perf_counter()
        tracer = self._tracer
        deliveries = None if tracer is None else [tracer.begin(message) for message in messages]
        outcomes: Sequence[Outcome] | None
        try:
            if self._hooks is None:
                returned = await self._function.call(messages if self._is_batch else messages[0])
            else:
                returned = await self._call_in_hooks(self._hooks, messages)
            # Nothing is what nearly all return.
            outcomes = None if returned is None else self._read(returned, len(messages))
        except Exception as error:
            _log.warning(
                "listener of %s failed on %s", self._group, self._told(messages), exc_info=True
            )
            outcomes = [failed(error)] * len(messages)
        if tracer is not None and deliveries is not None:
            for number, delivery in enumerate(deliveries):
                tracer.end(delivery, None if outcomes is None else failure_of(outcomes[number]))
        self._count(messages, outcomes, (time.perf_counter() - begun_s) * 1000)
        return outcomes

    async def consume_one(self, message: ReceivedMessage) -> Outcome | None:
        """Does as consume with one message: the quick way of most listeners."""
        if not self._is_lean:
            outcomes = await self.consume([message])
            return None if outcomes is None else outcomes[0]
        begun_s = time.perf_counter()
        outcome: Outcome | None = None
        try:
            returned = await self._function.call(message)
            if returned is not None and isinstance(returned, Outcome) and returned is not DONE:
                outcome = returned
        except Exception as error:
            told = self._told([message])
            _log.warning("listener of %s failed on %s", self._group, told, exc_info=True)
            outcome = failed(error)
        topic = message.record.topic
        tally = self.tallies.get(topic)
        if tally is None:
            tally = self.tallies[topic] = Tally()
        tally.busy_ms += (time.perf_counter() - begun_s) * 1000
        if outcome is None:
            tally.consumed_count += 1
        else:
            tally.failed_count += 1
        return outcome

    async def _call_in_hooks(self, hooks: Hooks, messages: Sequence[ReceivedMessage]) -> object:
        returned: object = None
        has_returned = False
        try:
            with contextlib.ExitStack() as stack:
                for message in messages:
                    stack.enter_context(hooks.consume(message, self._group))
                returned = await self._function.call(messages if self._is_batch else messages[0])
                has_returned = True
        except Exception:
            if not has_returned:
                raise
            # The listener has done its work; another call would do it twice.
            if not self._has_told_of_hooks:
                self._has_told_of_hooks = True
                _log.warning("hooks of %s failed; this is told once", self._group, exc_info=True)
        return returned

    def _told(self, messages: Sequence[ReceivedMessage]) -> str:
        """Returns which messages failed: the first in full, and what comes next."""
        first, now = messages[0], time.time_ns() // 1_000_000
        try:
            told = described(first) if self._tries is None else self._tries.told(first, now)
        except Exception:
            # Its properties are no text, say. What is told never decides what becomes of it.
            told = repr(first)
        return told if len(messages) == 1 else f"{len(messages)} messages, the first: {told}"

    def _read(self, returned: object, count: int) -> Sequence[Outcome] | None:
        """Returns the outcomes that a listener gave.

        Raises:
            ClientError: it gave something else, or too many or too few of them.
        """
        if not self._is_batch:
            # As ever, what it returns besides says nothing.
            return [returned] if isinstance(returned, Outcome) and returned is not DONE else None
        if not isinstance(returned, (list, tuple)) or len(returned) != count:
            raise ClientError(
                f"the listener returned {returned!r:.80}; wanted: nothing, or a list of an outcome"
                f" for each of the {count} messages"
            )
        outcomes = [DONE if one is None else one for one in returned]
        for one in outcomes:
            if not isinstance(one, Outcome):
                raise ClientError(f"{one!r:.80} is no outcome; wanted: DONE, BURY, retry() or None")
        return None if all(one.kind is Kind.DONE for one in outcomes) else outcomes

    def _count(
        self,
        messages: Sequence[ReceivedMessage],
        outcomes: Sequence[Outcome] | None,
        spent_ms: float,
    ) -> None:
        each_ms = spent_ms / len(messages)
        for number, message in enumerate(messages):
            topic = message.record.topic
            tally = self.tallies.get(topic)
            if tally is None:
                tally = self.tallies[topic] = Tally()
            tally.busy_ms += each_ms
            if outcomes is None or outcomes[number].kind is Kind.DONE:
                tally.consumed_count += 1
            else:
                tally.failed_count += 1
            if self._metrics is not None:
                outcome = DONE if outcomes is None else outcomes[number]
                said = "error" if outcome.error is not None else outcome.kind.value
                self._metrics.consumed(_topic_of(message), self._group, spent_ms / 1000, said)

    def close(self) -> None:
        """Ends the threads that a plain listener ran in."""
        self._function.close()


def _topic_of(message: ReceivedMessage) -> str:
    """Returns the topic that a message was sent to, as far as it can be read."""
    try:
        return message.topic
    except RemoteProtocolError:
        return message.record.topic


class NotConsumedError(ClientError):
    """A listener said that a message is not consumed; nothing was raised."""


def failure_of(outcome: Outcome) -> Exception | None:
    """Returns why a message is not consumed; None when it is."""
    if outcome.kind is Kind.DONE:
        return None
    return outcome.error or NotConsumedError(f"the listener said {outcome.kind.value}")
