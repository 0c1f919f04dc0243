"""Mistakes with members whose settings or clocks differ, planted into the product's classes."""

from typing import Any

from ledgermq.broker.clocks.clock_guard import ClockGuard
from ledgermq.dledger.handler import EntryHandler
from ledgermq.dledger.leader import Leader
from ledgermq.dledger.replica.durability import Durability
from tests.simulation.broken_twins import Patch


def async_follower_answers_at_once() -> list[Patch]:
    """The answer says that it is synced, and does not wait for that."""
    finish = Durability.finish

    def finish_at_once(self: Any, persist_id: Any, answers: Any) -> None:
        if self._is_syncing:
            finish(self, persist_id, answers)
            return
        self._appended += persist_id is not None
        self._finish(persist_id, answers)

    return [(Durability, "finish", finish_at_once)]


def unsynced_answer_counts() -> list[Patch]:
    """A follower goes by its own flush mode alone, and the leader takes its word for it."""
    answer = EntryHandler.answer

    def answer_unsynced(self: Any, request: Any, code: Any, term: int) -> None:
        answer(self, request, code, term)
        messages = self._outbox.after_persist
        messages[-1].is_synced = self._state.config.is_sync_flush

    def take(self: Any, response: Any, now_ms: float) -> None:
        self._heard(response.sender, response.recovering, now_ms)
        self._dispatchers[response.sender].respond(response, now_ms)

    return [(EntryHandler, "answer", answer_unsynced), (Leader, "on_push_response", take)]


def own_clock_is_believed() -> list[Patch]:
    return [(ClockGuard, "store_time", lambda self, now_ms, last_ms: max(now_ms, last_ms))]


def wrong_clock_closes_nothing() -> list[Patch]:
    return [(ClockGuard, "_find_reason", lambda self, finding: None)]


def store_times_never_go_back() -> list[Patch]:
    store_time = ClockGuard.store_time

    def no_earlier(self: Any, now_ms: int, last_ms: int) -> int:
        return max(store_time(self, now_ms, last_ms), last_ms)

    return [(ClockGuard, "store_time", no_earlier)]
