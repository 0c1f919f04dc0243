"""StateSweep: a leader goes through the tables, range by range, and proposes what it finds.

What the log says of the state grows with each change; a sweep says it once more, so that retention
may drop what is before it, and a member that begins behind all former changes knows everything. It
costs a little at a time, whatever the tables hold: a few ranges, then other work. A table may
change while the sweep is under way: each part is exact at its own place in the log, and what
changes behind that place is a command of its own.
"""

from typing import Final

from ledgermq.state.commands import SweepPart, sweep_body
from ledgermq.state.errors import BrokerError, is_refused
from ledgermq.state.formats import StateFormats
from ledgermq.state.machine import StateMachine
from ledgermq.state.proposals import StateProposals
from ledgermq.state.records import encoded, is_wide
from ledgermq.state.refusals import Refusals

# What one step reads and encodes, and what each member looks up to apply it: together three
# milliseconds. A hundred megabytes take three minutes.
STEP_BYTES: Final = 16 << 10
# Parts of a step.
_PARTS: Final = 2
_ENTRIES_MAX: Final = 1000
# Tables whose entries are dicts or lists of their own, of any length.
_DIVISIBLE: Final = frozenset({"offsets", "locks"})


class StateSweep:
    """The sweep of one leader.

    Invariant: `_table`, `_after` and `_part` name what the log has not, or not yet for certain.
    """

    def __init__(
        self,
        machine: StateMachine,
        proposals: StateProposals,
        refusals: Refusals,
        formats: StateFormats,
        cut_bytes: int,
        step_bytes: int,
    ) -> None:
        """Rests.

        Args:
            machine: is gone through.
            proposals: take the parts.
            refusals: told when the log does not.
            formats: tell in which one a part is written.
            cut_bytes: of the entries in one part.
            step_bytes: of what one step proposes.
        """
        self._machine = machine
        self._proposals = proposals
        self._refusals = refusals
        self._formats = formats
        self._cut_bytes = min(cut_bytes, step_bytes // _PARTS)
        self._step_bytes = step_bytes
        self._count = 0
        self._is_wanted = False
        self._is_waiting = False
        # Place of the sweep under way: a number of the tables, the last name that is done, and the
        # number of the next part; None while it rests.
        self._place: tuple[int, str, int] | None = None
        self._tables = list(machine.swept)
        # Of the sweep under way, and of the last whole one.
        self._bytes = self.bytes = 0

    def begin(self) -> None:
        """Has a sweep begin at the next step, or when the present one ends."""
        self._is_wanted = True

    def follow(self) -> None:
        """Forgets the sweep: this member leads no longer, or begins anew."""
        self._is_wanted = self._is_waiting = False
        self._place = None

    @property
    def is_at_rest(self) -> bool:
        """True while there is nothing to do."""
        return self._place is None and not self._is_wanted

    def step(self) -> None:
        """Proposes a few parts when the log takes them; called many times a second."""
        self._proposals.expire()
        if self._is_waiting or self._proposals.is_fenced or self._refusals.is_waiting:
            return
        if self._place is None:
            if not self._is_wanted:
                return
            self._is_wanted = False
            self._count += 1
            self._place = (0, "", 0)
            self._bytes = 0
        self._proposals.when_applied(self._propose)

    def _propose(self) -> None:
        assert self._place is not None
        before = self._place
        bodies: list[bytes] = []
        size = 0
        while self._place is not None and size < self._step_bytes:
            more = self._next_part()
            bodies += more
            size += sum(map(len, more))
        writer = self._proposals.writer
        self._is_waiting = True

        def done(error: BrokerError | None) -> None:
            if self._proposals.writer != writer:
                return
            self._is_waiting = False
            if error is None:
                self._refusals.stored()
                self._bytes += size
                if self._place is None:
                    self.bytes = self._bytes
            elif is_refused(error):
                # What takes long stands in the log, and stays there.
                self._place = before
                self._refusals.refused(error)

        self._proposals.propose(bodies, done)

    def _next_part(self) -> list[bytes]:
        """Returns the bodies of the next range, and goes behind it."""
        assert self._place is not None
        number, after, part = self._place
        table, writer = self._tables[number], self._proposals.writer
        entries, upto = self._range_behind(table, after)
        is_last = upto is None and number == self._last_number
        bodies = [
            sweep_body(
                SweepPart(
                    f"{writer}/{self._count}",
                    part + place,
                    is_last and place == len(entries) - 1,
                    table,
                    {},
                    None if place else after,
                    upto,
                    place < len(entries) - 1,
                    self._machine.version_of(table),
                    None if part + place else self._machine.progress.to_record(),
                ),
                writer,
                self._formats.written.write,
                text,
            )
            for place, text in enumerate(entries)
        ]
        if is_last:
            self._place = None
        elif upto is None:
            self._place = (number + 1, "", part + len(bodies))
        else:
            self._place = (number, upto, part + len(bodies))
        return bodies

    @property
    def _last_number(self) -> int:
        """Of the last table to go through: the rules, or the one before while there are none."""
        return len(self._tables) - (2 if self._machine.rules.record is None else 1)

    def _range_behind(self, table: str, after: str) -> tuple[list[str], str | None]:
        """Encodes what is behind a name, as much as suits a part.

        Returns:
            The entries, several times where one entry needs several parts; and the last name, None
            when nothing is behind it.
        """
        texts: list[str] = []
        size, upto = 0, after
        for name, value in self._machine.swept[table].behind(after):
            is_divisible = table in _DIVISIBLE
            if texts and is_divisible and is_wide(value, self._cut_bytes):
                # It is encoded once, in the part that begins with it.
                return [",".join(texts)], upto
            pieces = list(encoded(name, value, self._cut_bytes, is_divisible=is_divisible))
            if len(pieces) > 1 and not texts:
                return pieces, name
            size += sum(map(len, pieces))
            is_full = size > self._cut_bytes or len(texts) == _ENTRIES_MAX
            if texts and (is_full or len(pieces) > 1):
                return [",".join(texts)], upto
            texts += pieces
            upto = name
        return [",".join(texts)], None
