"""ClockGuard: no message is stored with the time of a clock that a majority of the group denies.

A store time that lies far ahead stays: later ones do not fall below it, so searches by time, ages
and delays of all that follows would be those of the wrong clock. So a member whose clock is an
outlier hands its leadership over, takes no messages while it cannot, and gives what it has to store
itself the time of the majority. Where the log ends with a time that the majority denies, the next
record goes back to the right one. Where no majority agrees (one member, two that differ) it is
reported, and store times do not fall.
"""

from typing import Final

from twisted.logger import Logger

from ledgermq.broker.leadership import Leadership
from ledgermq.dledger.clock_skew import ClockFinding, ClockVerdict
from ledgermq.dledger.replica.clock_exchange import ClockExchange

_KEY: Final = "ledgerClockSkewMax"

_log = Logger()


class ClockGuard:
    """What one broker does about the clocks of its group."""

    def __init__(
        self, clocks: ClockExchange, leadership: Leadership, *, trusts_clock: bool = False
    ) -> None:
        """Has judged nothing yet.

        Args:
            clocks: of this member and its peers.
            leadership: is closed while this member's clock is a wrong one; a leader that is closed
                hands over.
            trusts_clock: this machine's clock is right unless a majority denies it.
        """
        self._clocks = clocks
        self._leadership = leadership
        self._trusts_clock = trusts_clock
        self.limit_ms = clocks.group.limit_ms
        # This member's clock is a wrong one; and: it was when it was last judged.
        self.is_outlier = self._was_outlier = False

    def look(self) -> None:
        """Judges the clocks again: a leader with a wrong one takes no messages."""
        leadership, finding = self._leadership, self._clocks.judge()
        was_outlier = self._was_outlier
        self._was_outlier = finding.verdict is ClockVerdict.OUTLIER
        if self._was_outlier and not was_outlier:
            # After a jump of all clocks (machines that slept) those of the peers are not measured
            # yet. They are at the next look; until then `store_time` goes by the majority.
            return
        reason = self._find_reason(finding)
        alarm = reason or self._apart_text(finding)
        if bool(alarm) is not bool(leadership.clock_alarm):
            if alarm:
                _log.warn("clocks differ: {alarm}", alarm=alarm)
            else:
                _log.info("the clocks of the group agree")
        leadership.clock_alarm = alarm
        leadership.clock_difference_ms = finding.difference_ms
        leadership.close_for("clock", reason)
        self.is_outlier = reason is not None

    def store_time(self, now_ms: int, last_ms: int) -> int:
        """Returns the store time of the next record; see StoreTimes.

        Args:
            now_ms: this machine's wall clock.
            last_ms: store time of the last record.
        """
        finding = self._clocks.judge()
        if finding.verdict is ClockVerdict.UNDECIDED and not self._trusts_clock:
            return max(now_ms, last_ms)
        if finding.verdict is ClockVerdict.OUTLIER:
            now_ms -= finding.difference_ms
        return back_to_clock(now_ms, last_ms, self.limit_ms)

    def _find_reason(self, finding: ClockFinding) -> str | None:
        if finding.verdict is not ClockVerdict.OUTLIER:
            return None
        difference = _difference_text(finding.difference_ms)
        return f"the clock of this machine is {difference} a majority of the group's{self._bound}"

    def _apart_text(self, finding: ClockFinding) -> str:
        if not finding.apart:
            return ""
        apart = ", ".join(
            f"that of {peer_id} is {_difference_text(difference_ms)} this one"
            for peer_id, difference_ms in finding.apart.items()
        )
        is_known = finding.verdict is ClockVerdict.AGREES
        agreed = "a majority of clocks agrees" if is_known else "no majority of clocks agrees"
        return f"{agreed}: {apart}{self._bound}"

    @property
    def _bound(self) -> str:
        return f" (limit {self.limit_ms // 1000} s, key {_KEY})"


def back_to_clock(now_ms: int, last_ms: int, limit_ms: int) -> int:
    """Returns the store time of the next record by a clock that is right.

    Args:
        now_ms: of the clock.
        last_ms: store time of the last record; one that is further ahead than the limit was of a
            wrong clock.
        limit_ms: how far clocks may be apart.
    """
    if last_ms - now_ms <= limit_ms:
        return max(now_ms, last_ms)
    _log.warn(
        "store times go back by {seconds} s: the last one was of a wrong clock"
        " (limit {limit} s, key {key})",
        seconds=(last_ms - now_ms) // 1000,
        limit=limit_ms // 1000,
        key=_KEY,
    )
    return now_ms


def _difference_text(difference_ms: int) -> str:
    side = "ahead of" if difference_ms > 0 else "behind"
    return f"{round(abs(difference_ms) / 1000)} s {side}"
