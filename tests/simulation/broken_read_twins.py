"""Mistakes of members that answer from what they know, planted into the product's own classes."""

from typing import Any

from ledgermq.dledger.confirmations import Confirmations
from ledgermq.dledger.replica.confirming import Confirming
from ledgermq.dledger.replica.follower_reads import FollowerReads
from ledgermq.state.lock_requests import LockRequests
from tests.simulation.broken_twins import Patch


def answers_without_confirmation() -> list[Patch]:
    """Whoever takes itself for the leader answers."""

    def ask(self: Any, done: Any) -> None:
        done(None)

    return [(Confirming, "ask", ask)]


def rounds_that_began_before_the_question() -> list[Patch]:
    """The round that is on its way will do."""
    original = Confirmations.ask

    def ask(self: Any, now_ms: float) -> Any:
        point = original(self, now_ms)
        is_on_its_way = self._confirmed_round < self._round
        return point._replace(round=self._round) if is_on_its_way else point

    return [(Confirmations, "ask", ask)]


def rounds_of_an_earlier_term() -> list[Patch]:
    """What was answered in an earlier leadership counts in the next one."""

    def lead(self: Any) -> None:
        self._round = self._wanted_round = 0

    return [(Confirmations, "lead", lead)]


def locks_renewed_without_confirmation() -> list[Patch]:
    """A renewal is answered when all is applied that was proposed before."""

    def settled(self: Any, error: Any, done: Any) -> None:
        done(error)

    return [(LockRequests, "_settled", settled)]


def follower_answers_at_once() -> list[Patch]:
    """What is applied will do."""

    def ask(self: Any, done: Any) -> None:
        done(None)

    return [(FollowerReads, "ask", ask)]


def follower_answers_before_it_has_applied() -> list[Patch]:
    """The word of the leader will do."""
    original = FollowerReads._know

    def know(self: Any, number: int, index: int) -> None:
        original(self, number, -1)

    return [(FollowerReads, "_know", know)]


def questions_on_their_way_serve_later_ones() -> list[Patch]:
    """Whoever waits is served by the next answer."""
    original = FollowerReads._know

    def know(self: Any, number: int, index: int) -> None:
        original(self, number + 1, index)

    return [(FollowerReads, "_know", know)]


def followers_told_without_confirmation() -> list[Patch]:
    """Whoever takes itself for the leader tells followers how much it has committed."""
    original = FollowerReads._answer

    def answer(self: Any, request: Any) -> None:
        confirm, self._confirm = self._confirm, lambda done: done(None)
        original(self, request)
        self._confirm = confirm

    return [(FollowerReads, "_answer", answer)]
