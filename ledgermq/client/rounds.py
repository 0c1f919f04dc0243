"""Rounds: a member's queues are shared out again and again, at once when the members change.

While something is missing (no route, this member not known yet, a queue that could not be taken),
the next round comes soon, and brokers hear of the member again before it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ledgermq.client.endless import Lasting, all_of, keep_going
from ledgermq.client.errors import ClientError, NoRouteError
from ledgermq.client.holding import Holding
from ledgermq.client.instance import ClientInstance
from ledgermq.client.namespaces import without_namespace
from ledgermq.client.subscription import Expression
from ledgermq.protocol.heartbeat import SubscriptionData
from ledgermq.protocol.names import RETRY_PREFIX

# First pause while something is missing.
_PAUSE_S: Final = 0.25
# Longest pause while a queue is this member's that it could not take: another one has it locked
# still, and nobody tells when it lets go. Meanwhile the queue stands still.
_TAKE_PAUSE_S_MAX: Final = 1.0
# Of so many failures in a row one is told: not the first, for a topic that a send has just made is
# known to the name servers a moment later.
_TELL_EVERY: Final = 20
_TELL_AFTER: Final = 3

_log = logging.getLogger("ledgermq.client")


class Rounds:
    """What keeps the queues of one member as they are shared out."""

    def __init__(
        self,
        instance: ClientInstance,
        holding: Holding,
        group: str,
        subscriptions: Callable[[], Sequence[SubscriptionData]],
        interval_s: float,
        namespace: str = "",
    ) -> None:
        """Starts nothing yet.

        Args:
            instance: tells brokers of the member.
            holding: the member's queues.
            group: for the log.
            subscriptions: returns what the member wants now.
            interval_s: between two rounds when nothing happens.
            namespace: taken off the names of the subscriptions.
        """
        self._instance = instance
        self._holding = holding
        self._group = group
        self._subscriptions = subscriptions
        self._interval_s = interval_s
        self._namespace = namespace
        self._wake = asyncio.Event()
        # Rounds in a row after which something was missing.
        self._misses = 0
        # By topic.
        self._shares: dict[str, Lasting] = {}
        # Held while queues of a topic change hands.
        self._is_sharing = asyncio.Lock()

    def wake(self) -> None:
        """Makes the next round begin at once."""
        self._wake.set()

    async def drop(self, topic: str) -> list[asyncio.Task[None]]:
        """Drops the queues of a topic; the next round may take some again.

        Returns:
            What is done when they have left: a slow listener may hold them for long.
        """
        async with self._is_sharing:
            return self._holding.drop(self._holding.queues(topic))

    async def run(self) -> None:
        """Runs until it is cancelled."""
        await keep_going(f"sharing out the queues of {self._group}", self._round)

    async def _round(self) -> None:
        """Shares all topics out once, and waits until it is time for the next round."""
        self._wake.clear()
        settled: list[bool | None] = []

        async def share_out(wanted: SubscriptionData) -> None:
            settled.append(await self._share_out(wanted))

        async with self._is_sharing:
            # Asked for now: they may have changed while queues were dropped. One that fails does
            # not keep the others from their turn.
            await all_of(map(share_out, self._subscriptions()))
        self._misses = 0 if all(settled) else self._misses + 1
        pause_s = self._interval_s
        if self._misses:
            pause_s = min(pause_s, _PAUSE_S * 2 ** min(self._misses - 1, 10))
            if False in settled:
                pause_s = min(pause_s, _TAKE_PAUSE_S_MAX)
            await self._instance.send_heartbeats()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._wake.wait()

    async def _share_out(self, wanted: SubscriptionData) -> bool | None:
        """Shares one topic out; None when route or members are not to be had."""
        topic = without_namespace(self._namespace, wanted.topic)
        expression = Expression(wanted.sub_string, wanted.expression_type)
        try:
            settled = await self._holding.share_out(topic, expression)
            self._shares.pop(topic, None)
            return settled
        except ClientError as error:
            # A group that never failed anything may have no retry topic.
            if not topic.startswith(RETRY_PREFIX):
                self._tell(topic, error)
            return None

    def _tell(self, topic: str, error: ClientError) -> None:
        failing = self._shares.setdefault(topic, Lasting(f"{self._group} shares {topic}"))
        level = failing.level_of(error)
        if isinstance(error, NoRouteError) and not self._holding.queues(topic):
            if self._misses % _TELL_EVERY != _TELL_AFTER:
                return
            # Mostly a name that is spelled wrong: warnings are seen by default.
            level = logging.WARNING
        _log.log(level, "%s cannot share queues: %s", self._group, error)
