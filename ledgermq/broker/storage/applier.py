"""BrokerApplier: what the ledger tells, carried out on the broker's parts.

What is committed is answered to those who sent it, then dispatched, then the broker's own parts are
told and parked pulls wake: four calls a turn, whatever came. Nobody can look between the answer
and the dispatch, for no socket is read until the turn is over. A change of role closes the broker
for writes at once; a member that leads opens it when everything of former terms is applied, and
what is built in is there, or was refused: then it tries again until it is.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from twisted.logger import Logger

from ledgermq.broker.leadership import Leadership
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.commitlog import MessageStore
from ledgermq.dledger.member_state import Role
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import BrokerError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig

_log = Logger()


class Pulls(Protocol):
    """Pulls that wait for messages."""

    def messages_dispatched(self, arrivals: list[tuple[str, int, int, int]]) -> None:
        """These queues have messages: topic, queue id, offset behind, tags code."""


class Output(Protocol):
    """What has been written to connections in this turn."""

    def flush(self) -> None:
        """Sends it."""


class BrokerApplier:
    """The Applier of one broker's ledger member.

    Invariant: the state is written and sends are taken between `_begin_to_serve` and the next
    change of role only.
    """

    def __init__(
        self,
        self_id: str,
        leadership: Leadership,
        state: BrokerState,
        messages: MessageStore,
        proposals: Proposals,
        pulls: Pulls,
        output: Output,
        *,
        topics: Sequence[TopicConfig],
        groups: Sequence[SubscriptionGroup],
        answer: Callable[[int], None],
        answer_first: Callable[[int], None],
        on_role_changed: Callable[[], None],
        on_ready: Callable[[], None],
        doubt: Callable[[], str] = str,
    ) -> None:
        """Binds the parts.

        Args:
            self_id: of the ledger's member.
            topics: that every broker has.
            groups: likewise.
            output: flushed as soon as there are answers: they do not wait for the end of the turn.
            answer: told up to where messages are committed and dispatched; has all answered who
                are not yet.
            answer_first: told up to where they are committed, before they are dispatched; answers
                the clients that need not wait for more.
            on_role_changed: called after each change.
            on_ready: called when this member begins to serve.
            doubt: tells why the state is not complete, "" when it is: then this member does not
                serve although it leads, and the ledger hands over.
        """
        self._self_id = self_id
        self._topics = topics
        self._groups = groups
        self._leadership = leadership
        self._state = state
        self._messages = messages
        self._proposals = proposals
        self._pulls = pulls
        self._output = output
        self._answer = answer
        self._answer_first = answer_first
        self._on_role_changed = on_role_changed
        self._on_ready = on_ready
        self._doubt = doubt
        # Messages of the range that is being applied, for parked pulls.
        self._arrivals: list[tuple[str, int, int, int]] = []
        # Term in which this member is about to serve: what is built in is not applied yet.
        self._opening_term: int | None = None
        # Term in which this member serves although what is built in could not be stored.
        self._incomplete_term: int | None = None
        # A change of role is being carried out, and told at its end.
        self._is_changing = False
        messages.on_dispatched(self._arrivals.extend)

    def committed(self, start_index: int, end_index: int) -> None:
        """Answers the senders of a committed range, dispatches it, wakes parked pulls."""
        if not self._leadership.is_serving:
            # A leader refuses messages instead, and has those stored that it has taken.
            self._messages.check_files()
        self._answer_first(end_index)
        # The clients go on while the queues are built.
        self._output.flush()
        self._messages.committed(start_index, end_index)
        self._answer(end_index)
        if self._arrivals:
            arrivals = self._arrivals.copy()
            self._arrivals.clear()
            self._pulls.messages_dispatched(arrivals)
        self._output.flush()

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        """Opens or closes this broker for writes."""
        leadership = self._leadership
        is_ready_leader = role is Role.LEADER and is_ready
        if is_ready_leader and leadership.term == term and self._is_open_in(term):
            return
        leadership.changed(role.name, term, leader_id)
        self._close()
        self._is_changing = True
        leadership.doubt = self._doubt()
        if is_ready_leader and not leadership.is_stopping and not leadership.doubt:
            self._begin_to_serve(term)
        self._is_changing = False
        _log.info(
            "{member} is {role} in term {term}, leader {leader}, serving {serving}",
            member=self._self_id,
            role=role.name,
            term=term,
            leader=leader_id,
            serving=leadership.is_serving,
        )
        self._on_role_changed()
        self._output.flush()

    def _is_open_in(self, term: int) -> bool:
        return self._leadership.is_serving or self._opening_term == term

    def _begin_to_serve(self, term: int) -> None:
        self._messages.become_leader()
        self._state.lead(f"{self._self_id}/{term}")
        self._opening_term = term
        self._state.adopt(self._topics, self._groups, partial(self._adopted, term))

    def look(self) -> None:
        """Tries again to store what is built in, where it could not be; called each second."""
        term, self._incomplete_term = self._incomplete_term, None
        if term is not None and self._leadership.is_serving:
            self._state.adopt(self._topics, self._groups, partial(self._tried_again, term))

    def _tried_again(self, term: int, error: BrokerError | None) -> None:
        if self._leadership.term != term:
            return
        if error is not None:
            self._incomplete_term = term
        else:
            _log.info("what is built in is stored now")

    def _adopted(self, term: int, error: BrokerError | None) -> None:
        """What is built in is there, or cannot be stored now: the rest is served all the same."""
        if self._opening_term != term:
            return
        self._opening_term = None
        if error is not None:
            _log.warn("what is built in is not stored, to be tried again: {error}", error=error)
            self._incomplete_term = term
        self._leadership.serve()
        self._on_ready()
        if not self._is_changing:
            _log.info("{member} serves in term {term}", member=self._self_id, term=term)
            self._on_role_changed()

    def _close(self) -> None:
        """Ends what only a leader may do; what waits is told why."""
        self._opening_term = self._incomplete_term = None
        self._messages.resign()
        self._state.follow()
        self._proposals.fail_all(self._leadership.refusal())

    def failed(self, error: BaseException) -> None:
        """The ledger member has stopped for good: this broker takes no writes any more."""
        self._leadership.fail(f"{type(error).__name__}: {error}")
        self._close()
        _log.error(
            "{member} has left its group for good: {reason}",
            member=self._self_id,
            reason=self._leadership.failure,
        )
        self._on_role_changed()
        self._output.flush()
