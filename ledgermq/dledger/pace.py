"""Pace: how punctual this member is and how long answers take; so, how long it should wait.

The times of the configuration are right for a machine that does what is due when it is due. On one
that has no time for its members, everybody is late: heart beats, answers, and whoever judges them.
To elect then helps nobody, for the next leader is as late as the last one. So each member measures
itself, and waits in proportion; no other member needs to know.

    measured                                     what it stretches
    how late the member's own turns come         the patience with a leader and with a majority,
    (share of the time it lost lately)           rounds of votes and the waits between them
    time from a question to its answer           the leader's patience, rounds and waits
    rounds in which votes were split             rounds and waits

A stretch is at least 1, and `Timing.stretch_max` at most; a member that is punctual, and answered
within the times of the configuration, keeps to them exactly. What a single late turn has cost is
excused besides (`Wait`): what arrived meanwhile still lies unread.
"""

from typing import Final

from ledgermq.dledger.config import Timing

# A turn that comes this much after its time is punctual yet.
LATE_MIN_MS: Final = 50.0
# The time over which lost time is remembered: what lies so far back counts for about a third.
MEMORY_MS: Final = 30_000.0
# Who lost less than this part of its time is punctual.
_LOST_SHARE_MIN: Final = 0.2
# What lies in the sockets of a member that was late is read in so much time, or never.
READING_MS: Final = 20.0


class Pace:
    """What one member has measured.

    Invariant: the stretches lie between 1 and `Timing.stretch_max`.
    """

    __slots__ = (
        "_attended_ms",
        "_lost_ms",
        "_lost_total_ms",
        "_round_trip_ms",
        "_seen_ms",
        "_slowest_ms",
        "_split_count",
    )

    def __init__(self, now_ms: float) -> None:
        """As if the member had been punctual so far."""
        # When it was last called.
        self._seen_ms = now_ms
        # Time in which it was there, and time that it lost; the older, the less counted.
        self._attended_ms = MEMORY_MS
        self._lost_ms = 0.0
        # All that it ever lost.
        self._lost_total_ms = 0.0
        # How long the last answers took: a longer one counts at once, shorter ones bring it down.
        self._round_trip_ms = 0.0
        # How long the slowest one took; the older, the less counted.
        self._slowest_ms = 0.0
        # Rounds since the last leader in which others had got the votes.
        self._split_count = 0

    @property
    def seen_ms(self) -> float:
        """When the member was last called."""
        return self._seen_ms

    @property
    def own_ms(self) -> float:
        """Monotonic time without what this member has lost: on this clock others are measured."""
        return self._seen_ms - self._lost_total_ms

    def enter(self, now_ms: float, due_ms: float) -> float:
        """Takes that the member is called.

        Args:
            now_ms: monotonic time.
            due_ms: when it had asked to be called at the latest.

        Returns:
            How late that is in ms; 0 when it is punctual.
        """
        gap_ms = now_ms - self._seen_ms
        if gap_ms <= 0:
            return 0.0
        self._seen_ms = now_ms
        late_ms = min(now_ms - due_ms, gap_ms)
        if late_ms < LATE_MIN_MS:
            late_ms = 0.0
        kept = MEMORY_MS / (MEMORY_MS + gap_ms)
        self._attended_ms = self._attended_ms * kept + gap_ms - late_ms
        self._lost_ms = self._lost_ms * kept + late_ms
        self._lost_total_ms += late_ms
        self._round_trip_ms *= kept
        self._slowest_ms *= kept
        return late_ms

    def answered(self, asked_ms: float) -> None:
        """Takes an answer to what was asked at this `own_ms`.

        For votes, a few quick answers make a slow one forgotten.
        """
        round_trip_ms = self.own_ms - asked_ms
        self._round_trip_ms = max(round_trip_ms, self._round_trip_ms / 2)
        self._slowest_ms = max(round_trip_ms, self._slowest_ms)

    def vote_split(self) -> None:
        """Takes that a round of votes was lost to other candidates."""
        self._split_count += 1

    def leader_found(self) -> None:
        """Takes that an election is over."""
        self._split_count = 0

    def stretch(self, timing: Timing) -> float:
        """Tells by how much this member's own lateness stretches its patience with a leader."""
        attended_ms, lost_ms = self._attended_ms, self._lost_ms
        if lost_ms < _LOST_SHARE_MIN * (attended_ms + lost_ms):
            return 1.0
        if lost_ms >= (timing.stretch_max - 1) * attended_ms:
            return float(timing.stretch_max)
        return (attended_ms + lost_ms) / attended_ms

    def majority_stretch(self, timing: Timing) -> float:
        """Tells by how much a leader's patience with a silent majority is stretched.

        Followers that are late answer much at once: quick answers do not undo the slow one before.
        """
        return self._at_least(2 * self._slowest_ms / timing.election_timeout_ms, timing)

    def vote_stretch(self, timing: Timing) -> float:
        """Tells by how much rounds of votes, and the waits between them, are stretched."""
        # The first one is chance.
        splits = float(1 << min(max(self._split_count - 1, 0), 10))
        return self._at_least(max(2 * self._round_trip_ms / timing.vote_round_ms, splits), timing)

    def _at_least(self, wanted: float, timing: Timing) -> float:
        return max(self.stretch(timing), min(wanted, float(timing.stretch_max)))


class Wait:
    """A silence that a member judges: of its leader, or of a leader's majority.

    A member that was late itself does not count that time as silence of others, up to a bound. And
    when its patience would be over at the very moment at which it comes late, it reads first what
    lies in its sockets; once, so that nothing is put off for ever.
    """

    __slots__ = ("_excused_ms", "_reads_until_ms", "since_ms")

    def __init__(self, since_ms: float) -> None:
        self.begin(since_ms)

    def begin(self, since_ms: float) -> None:
        """Somebody was heard of."""
        # When they were last heard of.
        self.since_ms = since_ms
        self._excused_ms = 0.0
        self._reads_until_ms = float("-inf")

    def excuse(self, late_ms: float, now_ms: float, timing: Timing) -> None:
        """Takes that the member comes late itself."""
        self._excused_ms = min(self._excused_ms + late_ms, timing.excused_max_ms)
        is_first = self._reads_until_ms == float("-inf")
        if is_first and now_ms - self.since_ms >= timing.election_timeout_ms:
            self._reads_until_ms = now_ms + READING_MS

    def end_ms(self, patience_ms: float) -> float:
        """Tells when the member's own patience is over."""
        return max(self.since_ms + patience_ms + self._excused_ms, self._reads_until_ms)

    def is_over(self, patience_ms: float, now_ms: float) -> bool:
        """Tells whether others may be told of the silence: without excuses, but for reading."""
        return now_ms - self.since_ms >= patience_ms and now_ms >= self._reads_until_ms
