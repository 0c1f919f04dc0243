"""Deliveries: what comes out of an internal queue, appended behind the plan that tells of it."""

from collections.abc import Callable, Sequence

from ledgermq.broker.own_messages import state_message
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.state.errors import BrokerError
from ledgermq.state.queue_progress import Run

# Told where the deliveries are, without the plan, or why they are not known to be anywhere.
Delivered = Callable[[Sequence[AppendResult], BrokerError | None], None]


class Deliveries:
    """The way of deliveries into the append of the turn, all in one piece."""

    def __init__(
        self,
        proposals: Proposals,
        plan_body: Callable[[Sequence[Run]], bytes],
        store_host: tuple[bytes, int],
        now_ms: Callable[[], int],
    ) -> None:
        """Binds the parts; `plan_body` makes the record of a plan, `now_ms` is the wall clock."""
        self._proposals = proposals
        self._plan_body = plan_body
        self._store_host = store_host
        self._now_ms = now_ms

    def append(
        self, runs: Sequence[Run], messages: Sequence[AppendMessage], delivered: Delivered
    ) -> None:
        """Appends a plan and its deliveries.

        Args:
            runs: what the deliveries mean for the cursors of their queues.
            messages: one for each delivery of the runs, in order; checked to fit into the log.
            delivered: called once.
        """
        plan = state_message(self._plan_body(runs), self._store_host, self._now_ms())

        def done(results: Sequence[AppendResult] | None, error: BrokerError | None) -> None:
            delivered([] if results is None else results[1:], error)

        self._proposals.add_own([plan, *messages], done)
