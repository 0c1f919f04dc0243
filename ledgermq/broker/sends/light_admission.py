"""LightAdmission: the checks of a message that goes into light queues besides its own.

Each light queue has a consume queue with files of its own, and comes into being by being named; so
their number is limited. What waits for its time or the end of its transaction is checked when it is
sent, and is put into them whatever has come meanwhile.

To count twenty thousand takes a tenth of a second. So those that were let in since the last count
are noted, which are there in a moment, and they are counted anew now and then.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.commitlog import (
    LIGHT_QUEUE_ID,
    OFFSET_DIGITS_MAX,
    OFFSETS_BYTES,
    is_light_queue,
    named_queues,
)
from ledgermq.protocol.properties import INNER_MULTI_DISPATCH
from ledgermq.state import names
from ledgermq.state.errors import IllegalMessageError, SystemBusyError


class LightQueues(Protocol):
    """What is needed of a message store."""

    def count_light_queues(self) -> int: ...

    def queues(self, topic: str) -> list[int]: ...


# A count is good for so long; one that says that there is no room is looked at sooner.
_COUNT_S: Final = 60.0
_FULL_COUNT_S: Final = 5.0


class LightAdmission:
    """Says whether a message may go into light queues, or why not."""

    def __init__(
        self,
        config: BrokerConfig,
        queues: LightQueues,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Binds the parts; `clock_s` is monotonic."""
        self._clock_s = clock_s
        # How many there were, when that was counted, and whom it did not find.
        self._count = 0
        self._counted_s = float("-inf")
        self._let_in: set[str] = set()
        self._queues_max = config.light_queues_max
        self._knows_names = config.knows_light_queues
        self._is_on = config.knows_light_queues and config.dispatches_to_light_queues
        self._queues = queues

    def check_topic(self, topic: str) -> None:
        """Raises SystemBusyError when a send would make one light queue too many."""
        if self._knows_names and is_light_queue(topic):
            self._check_room([topic])

    def check(self, value: str | None) -> int:
        """Checks the queues that a message names.

        Args:
            value: of INNER_MULTI_DISPATCH, None without it.

        Returns:
            Bytes that their offsets will take in its properties; 0 while this broker puts nothing
            into light queues.

        Raises:
            IllegalMessageError: a name is not that of a light queue.
            SystemBusyError: there would be too many of them.
        """
        if value is None or not self._is_on:
            return 0
        wanted = named_queues(value)
        if wanted is None:
            raise IllegalMessageError(
                f"the message is illegal: {INNER_MULTI_DISPATCH} is {value[:200]!r}, allowed are"
                f" names of light queues, {names.LIGHT_QUEUE_PREFIX} and %|a-zA-Z0-9_-, joined with"
                " a comma"
            )
        self._check_room(wanted)
        return OFFSETS_BYTES + OFFSET_DIGITS_MAX * len(wanted)

    def _check_room(self, wanted: list[str]) -> None:
        new = {name for name in wanted if LIGHT_QUEUE_ID not in self._queues.queues(name)}
        if not new:
            return
        count = self._count_with(new)
        if count + len(new - self._let_in) > self._queues_max:
            raise SystemBusyError(
                f"message not stored: there are {count} light queues and it would make {len(new)}"
                f" more, allowed are {self._queues_max} (key maxLmqConsumeQueueNum)"
            )
        self._let_in |= new

    def _count_with(self, new: set[str]) -> int:
        """Returns how many there are, with those that were let in."""
        age_s = self._clock_s() - self._counted_s
        count = self._count + len(self._let_in)
        is_full = count + len(new - self._let_in) > self._queues_max
        if age_s >= (_FULL_COUNT_S if is_full else _COUNT_S):
            self._count, self._counted_s = self._queues.count_light_queues(), self._clock_s()
            if age_s >= _COUNT_S:
                # What is not there by now waits for its time, or was lost.
                self._let_in.clear()
            else:
                self._let_in = {
                    name for name in self._let_in if LIGHT_QUEUE_ID not in self._queues.queues(name)
                }
            count = self._count + len(self._let_in)
        return count
