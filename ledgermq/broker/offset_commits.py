"""OffsetCommits: commits of offsets whose sender waits for an answer.

It comes when the next leader would know of the offset, too. All commits of a turn become one write,
and what was told one-way before goes with it.
"""

from collections.abc import Callable

from ledgermq.broker.errors import BrokerError
from ledgermq.broker.state_log import BrokerState
from ledgermq.broker.under_way import OnCommitted


class OffsetCommits:
    """Those who wait for the write at the end of this turn."""

    def __init__(
        self,
        state: BrokerState,
        *,
        call_at_end_of_turn: Callable[[Callable[[], None]], object],
        refusal: Callable[[], BrokerError],
    ) -> None:
        """Nobody waits.

        Args:
            state: has the offsets already when `wait` is called.
            call_at_end_of_turn: has a function called when the reactor has served all that was
                readable.
            refusal: says why this member does not lead.
        """
        self._state = state
        self._call_at_end_of_turn = call_at_end_of_turn
        self._refusal = refusal
        self._waiting: list[OnCommitted] = []

    def wait(self, done: OnCommitted) -> None:
        """Has `done` told when the offsets of now are committed, or why that is not known."""
        if not self._waiting:
            self._call_at_end_of_turn(self._write)
        self._waiting.append(done)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []

        def told(error: BrokerError | None) -> None:
            for done in waiting:
                done(error)

        if self._state.is_leading:
            self._state.write_offsets(told)
        else:
            told(self._refusal())
