"""Refusals: who is not let in to a group, and why; logged once a source, shown while it lasts.

Anybody who reaches the port can bring a refusal about, so that all is bounded: lines in the log by
their rate, what is kept by its count and its age.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from twisted.logger import Logger

from ledgermq.protocol.rate_limit import RateLimit

# Of the table, and of one reason in it.
_KEPT_MAX: Final = 32
_TEXT_MAX: Final = 300
# Who is refused tries again each second; who has not for so long has gone.
_AGE_S_MAX: Final = 120.0
_LINES_PER_S: Final = 1
_LINES_AT_ONCE: Final = 30

_log = Logger()


class _Refusal(NamedTuple):
    reason: str
    # Seconds of the clock, of the last time.
    seen_s: float
    # Whether the member has another member list or cluster id.
    is_membership: bool


class Refusals:
    """The sources that one member refuses, or that refuse it."""

    def __init__(self, self_id: str, seconds: Callable[[], float]) -> None:
        """
        Args:
            self_id: this member.
            seconds: the reactor's clock.
        """
        self._self_id = self_id
        self._seconds = seconds
        # By who it says it is and its address; those that came again last stand last.
        self._table: dict[tuple[str, str], _Refusal] = {}
        self._lines = RateLimit(_LINES_PER_S, _LINES_AT_ONCE)
        # Lines that were left out, for they were too many.
        self._left_out_count = 0

    def note(
        self,
        who: str,
        host: str,
        reason: str,
        *,
        is_logged: bool = True,
        is_membership: bool = False,
    ) -> None:
        """Takes a refusal; logs it when it is a new one.

        Args:
            who: the member that it is, or says it is; any text that is short.
            host: its address.
            reason: fit for people.
            is_logged: False where the caller logs it.
            is_membership: it has another member list or cluster id.
        """
        now_s, source = self._seconds(), (who, host)
        reason = reason[:_TEXT_MAX]
        former = self._table.pop(source, None)
        self._table[source] = _Refusal(reason, now_s, is_membership)
        while len(self._table) > _KEPT_MAX:
            del self._table[next(iter(self._table))]
        if not is_logged or (former is not None and former.reason == reason):
            return
        if not self._lines.take("", now_s):
            self._left_out_count += 1
            return
        left_out, self._left_out_count = self._left_out_count, 0
        _log.warn(
            "{self_id}: refusing {who} at {host}: {reason}{more}",
            self_id=self._self_id,
            who=who,
            host=host,
            reason=reason,
            more=f" ({left_out} refusals were not logged before)" if left_out else "",
        )

    def forget(self, who: str, host: str) -> None:
        """Takes the news that a source was let in."""
        self._table.pop((who, host), None)

    def texts(self) -> list[str]:
        """Returns "who at host: reason" for each source of the last two minutes, sorted."""
        return sorted(
            f"{who} at {host}: {refusal.reason}" for (who, host), refusal in self._recent()
        )

    def memberships(self) -> dict[str, str]:
        """Returns the members with another member list or cluster id, and the reasons."""
        return {who: one.reason for (who, _), one in self._recent() if one.is_membership}

    def _recent(self) -> Iterator[tuple[tuple[str, str], _Refusal]]:
        oldest_s = self._seconds() - _AGE_S_MAX
        return (found for found in self._table.items() if found[1].seen_s >= oldest_s)
