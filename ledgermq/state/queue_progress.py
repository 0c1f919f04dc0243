"""QueueProgress: how far the broker has worked off queues of its own: delay levels, half messages.

A leader takes messages out of such a queue and appends what becomes of them, the deliveries.
Nothing may be delivered twice or forgotten when the leader is lost between the two, so before its
deliveries, in the same append, it writes a plan, a record of the broker's state:

    {"kind":"plan","runs":[[queue, next_offset, count], ...]}

The k-th entry behind a plan is its k-th delivery. A run says that `count` of them follow, the
first of which takes the cursor of the queue to next_offset, the second to next_offset + 1, and so
on; a run of none moves the cursor alone, past a message that is not there any more.

The log may keep a plan with only some of its deliveries: its leader was lost while they were on
their way. Which ones it keeps can be told from terms alone. A leader appends in order, so an entry
behind the plan that has the plan's term is the delivery that the plan puts there. Every member
follows the plans in log order; a new leader has the whole log applied before it delivers anything,
and so begins exactly where the former one ended.

A Java leader writes no plans. What it has worked off is heard from itself (`state_copy.py`), and
kept beside what the log tells: whoever leads next begins at the later of the two.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ledgermq.dledger.errors import LedgerError
from ledgermq.state.consumer_offsets import offsets_by_queue
from ledgermq.state.json_values import INT32, INT64, is_whole

# Key of the queue of half messages; delay levels have their own numbers, from 1 on.
HALF_QUEUE: Final = 0
_OFFSET_MAX: Final = INT64.stop - 1
# Queues and counts of a run.
_NUMBERS: Final = range(INT32.stop)

# Of a plan's index, its number of deliveries, and the index behind the last entry that is applied:
# how many of its deliveries the log keeps, and whether that will not change any more.
KeptOf = Callable[[int, int, int], tuple[int, bool]]


class Run(NamedTuple):
    """Deliveries out of one queue that follow one another."""

    queue: int
    # Cursor of the queue behind the first of them.
    next_offset: int
    # 0 moves the cursor without a delivery.
    delivery_count: int


class _Plan(NamedTuple):
    """The newest plan, as long as it is not known which of its deliveries the log keeps."""

    # Index of its entry.
    place: int
    runs: tuple[Run, ...]


class QueueProgress:
    """The cursors of the internal queues: the number of the next message to be worked off.

    Invariant: `_offsets` and `_plan` change in log order, on every member alike; `_cursors` is what
    a leader has planned, and is thrown away with its leadership.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._plan: _Plan | None = None
        # What leaders that write no plans have worked off, as far as this member heard of it.
        self._heard: dict[int, int] = {}
        self._cursors: dict[int, int] | None = None
        # How often this member began to lead: what belongs to an earlier time is stale.
        self.leadership = 0
        # Until `attach` names the log, all that was planned counts as delivered.
        self._term_at: Callable[[int], int] = lambda index: 0
        self._kept_of: KeptOf = self._kept_by_terms
        self._end_index: Callable[[], int] = lambda: _OFFSET_MAX

    def attach(self, term_at: Callable[[int], int], end_index: Callable[[], int]) -> None:
        """Names the log, one of entries.

        Args:
            term_at: term of an entry; raises LedgerError for one that retention dropped.
            end_index: index behind the last entry that is applied.
        """
        self._term_at = term_at
        self._end_index = end_index

    def attach_plain(self, kept: KeptOf, end_index: Callable[[], int]) -> None:
        """Names the log, one whose indexes are bytes and which has no terms.

        Args:
            kept: counts the deliveries behind a plan.
            end_index: index behind the last record that is applied.
        """
        self._kept_of = kept
        self._end_index = end_index

    @property
    def end_index(self) -> int:
        """Index behind the last entry that is applied, once the log is named."""
        return self._end_index()

    # In log order, on every member.

    def planned(self, runs: Sequence[Run], index: int) -> None:
        """Follows the plan in the entry at `index`; what came before it is decided now."""
        self._settle(index)
        self._plan = _Plan(index, tuple(runs))

    def replace(self, offsets: Mapping[Any, Any]) -> None:
        """Takes over all cursors of a leader, by queue, as of this place in the log."""
        self._plan = None
        self._offsets = offsets_by_queue(offsets)

    def _settle(self, end_index: int) -> None:
        """Applies what the entries below an index tell about the plan; idempotent."""
        plan = self._plan
        if plan is None:
            return
        total = sum(run.delivery_count for run in plan.runs)
        kept, is_decided = self._kept_of(plan.place, total, end_index)
        left = kept
        for queue, next_offset, count in plan.runs:
            taken = min(count, left)
            left -= taken
            if taken or not count:
                self._offsets[queue] = next_offset + max(taken - 1, 0)
            if taken < count:
                break
        if is_decided:
            self._plan = None

    def _kept_by_terms(self, place: int, total: int, end_index: int) -> tuple[int, bool]:
        behind = range(place + 1, min(place + total + 1, end_index))
        try:
            # Terms of a log never fall.
            kept = bisect_right(behind, self._term_at(place), key=self._term_at)
        except LedgerError:
            # So old that retention took it: it was decided long ago.
            return total, True
        return kept, kept == total or place + kept + 1 < end_index

    # On the leader.

    @property
    def is_leading(self) -> bool:
        """True between `lead` and `follow`."""
        return self._cursors is not None

    def hear(self, offsets: Mapping[Any, Any]) -> None:
        """Notes what a leader that writes no plans has delivered, by level as in delayOffset.json.

        It stays true whoever leads next, so a smaller number than one heard before is left out.
        """
        for level, offset in offsets_by_queue(offsets).items():
            if level != HALF_QUEUE:
                self._heard[level] = max(self._heard.get(level, 0), offset)

    def _reached(self) -> dict[int, int]:
        """The cursors by what is applied and by what was heard."""
        self._settle(self._end_index())
        reached = dict(self._offsets)
        for queue, offset in self._heard.items():
            reached[queue] = max(reached.get(queue, 0), offset)
        return reached

    def lead(self) -> None:
        """This member begins to deliver: all that former leaders wrote is applied."""
        self._cursors = self._reached()
        self.leadership += 1

    def follow(self) -> None:
        """This member delivers no more."""
        self._cursors = None

    def cursor(self, queue: int) -> int:
        """Returns the next message of a queue, 0 when nothing was ever worked off."""
        return 0 if self._cursors is None else self._cursors.get(queue, 0)

    def raise_to(self, queue: int, offset: int) -> None:
        """Passes what is known from elsewhere to be worked off."""
        assert self._cursors is not None, "a member that does not lead moved a cursor"
        self._cursors[queue] = max(self._cursors.get(queue, 0), offset)

    def advance(self, runs: Sequence[Run]) -> dict[int, int]:
        """Moves the cursors to where a plan leaves them; it is appended in this turn.

        Returns:
            The former cursors of those queues, for `take_back`.
        """
        assert self._cursors is not None, "a member that does not lead planned deliveries"
        former = {run.queue: self._cursors.get(run.queue, 0) for run in runs}
        for queue, next_offset, count in runs:
            self._cursors[queue] = next_offset + max(count - 1, 0)
        return former

    def take_back(self, former: Mapping[int, int]) -> None:
        """Undoes `advance`: the plan did not get into the log."""
        if self._cursors is not None:
            self._cursors.update(former)

    # As records and files.

    def to_record(self) -> dict[str, int]:
        """Returns where the last plan of a leader leaves the cursors, for a sweep."""
        return {str(queue): offset for queue, offset in sorted((self._cursors or {}).items())}

    def levels(self) -> dict[int, int]:
        """Returns the cursors of the delay levels, as known here."""
        offsets = self._reached() if self._cursors is None else self._cursors
        return {queue: offset for queue, offset in offsets.items() if queue != HALF_QUEUE}

    def to_json(self) -> dict[str, Any]:
        """Returns the content of delayOffset.json as of the last applied entry.

        Upstream knows the offsetTable, and skips what stands beside it: the cursor of the half
        messages, what was heard, and a plan of which not all deliveries are applied.
        """
        offsets = self._reached()
        value: dict[str, Any] = {
            "offsetTable": {queue: at for queue, at in offsets.items() if queue != HALF_QUEUE}
        }
        if HALF_QUEUE in offsets:
            value["halfOffset"] = offsets[HALF_QUEUE]
        if self._heard:
            value["heard"] = dict(self._heard)
        if self._plan is not None:
            value["plan"] = [self._plan.place, [list(run) for run in self._plan.runs]]
        return value

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of delayOffset.json; what is not understood is left out."""
        table = value.get("offsetTable")
        self.replace(table if isinstance(table, Mapping) else {})
        self._offsets.update(offsets_by_queue({HALF_QUEUE: value.get("halfOffset")}))
        heard = value.get("heard")
        self.hear(heard if isinstance(heard, Mapping) else {})
        match value.get("plan"):
            case [index, list(runs)] if is_whole(index, INT64):
                self._plan = _Plan(index, tuple(runs_from_json(runs)))


def runs_from_json(value: object) -> list[Run]:
    """Reads the runs of a plan; what is not understood is left out."""
    runs = []
    for run in value if isinstance(value, list) else []:
        match run:
            case [queue, next_offset, count] if (
                is_whole(queue, _NUMBERS)
                and is_whole(count, _NUMBERS)
                # The cursor behind the last delivery is an offset, too.
                and is_whole(next_offset, range(_OFFSET_MAX - count))
            ):
                runs.append(Run(queue, next_offset, count))
    return runs
