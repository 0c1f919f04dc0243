"""TurnShares: how much of one turn of the reactor goes into what connections ask for.

What came in one read may take a millisecond or ten seconds, as its sender likes, and any number of
connections may send. So all requests of a turn share a bounded part of it, in time, and each
connection has a share of that: when it is used, what is left of its requests waits here, in a line
with others like it, until the next turn. Between two turns the reactor serves all other sockets,
and what was asked for is carried out: proposed, written, sent to the others, answered.

An answer takes several turns. So that those who ask for little do not wait for those who ask for
much, the latter get less of each turn while the former are there, and stand behind them in the
line, last of all those who owe most. A single request is never cut: whoever works on one for long
must bound that itself; what it took beyond the part of its turn is missing from that of the next
ones.

Requests cause more work than is seen while they are worked on: what was read is cut into frames,
messages are appended, sent to the other members, dispatched, answered, all of it once a turn. How
much that is beside the requests is learnt from the turns before, and the parts are so much smaller.

A share ends by the clock. Who asks for much is told by processor time: on a busy machine a thread
may stand still for longer than any request takes, and nobody is to blame for that. Of many who ask
for much each is served seldom, and would look modest again by the time that passed; so while
somebody stands in the line, what is taken off is a part of what one of them gets. Who has nothing
left to be done is not served seldom, it asks seldom: time is taken off for that. So a client that
waits for each answer asks for little, however many others ask for much.

A thousand connections that each ask for little ask for much together. So what is used is also
counted for whom it is: for an account, or for the peer's address where none is known. While another
one is there who asks for little, all connections of who asks for much are as those that do. Whose a
connection is, its first request tells; so what newcomers of an address ask for first, which may be
much, counts for the address, too, and is what the next newcomers are judged by. And as so many of
them may come at one moment, they stand behind those who are known to ask for little, and have no
more of a turn together than those who ask for much.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol
from weakref import WeakValueDictionary

from ledgermq.protocol.networks import network_of
from ledgermq.protocol.transport.turn import Clock, DelayedCall

# Seconds of a turn: for one connection, for all, and for all that ask for much while others are
# there who do not.
SHARE_S: Final = 0.005
TURN_S: Final = 0.01
CROWDED_S: Final = 0.0015
# What part of a turn those have together who ask for little: hundreds of them may be there, and
# nothing bounds what is read of each in the same turn.
_LIGHT_PART: Final = 0.5
# Who owes this or more asks for much: what it used lately, which never counts as more than the
# second number. Taken off is a tenth of the time that passes, at most; in the line, of the
# processor time, and no more than most of what each of those there is given meanwhile.
LIGHT_S: Final = 0.001
_DEBT_MAX_S: Final = 0.01
# What one owes at most that was told by the clock, which may count time of other programs.
_INEXACT_MAX_S: Final = 0.002
_PAID_BACK: Final = 0.1
_PAID_BACK_OF_GIVEN: Final = 0.75
_PAID_BACK_TOGETHER: Final = 0.25
# The last turn counts as such a part of a usual one; and what requests cause later counts as so
# many times their own processor time, at most.
_NEWS: Final = 0.125
_CAUSED_MAX: Final = 4.0
# Of those who ask for much: what they took too much, and what never counts as more.
_CARRIED_MAX_S: Final = 0.1
# Those who ask for little are there for so long after the last of them was served.
_MEMORY_S: Final = 1.0
# Whose connections together owe this or more asks for much, and what that never counts as more
# than; taken off is a tenth of the time that passes, whatever waits.
_PAYER_LIGHT_S: Final = 0.02
_PAYER_DEBT_MAX_S: Final = 0.2


class Waiting(Protocol):
    """A connection with requests left."""

    def go_on(self) -> None:
        """Works on them for one share, and comes back to the line when some are left."""


class Paying(Protocol):
    """A connection, of which it is known whose it is."""

    account: str | None
    peer_host: str


def payer_of(connection: Paying) -> str:
    """Returns for whom something is done: an account, or an address, or network, where none is
    known.
    """
    return connection.account or network_of(connection.peer_host)


class Payer:
    """Whose connections they are: an account, or an address."""

    __slots__ = ("__weakref__", "_debt_s", "_paid_s", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        # What its connections owe together, and what was taken off of all debts when that was
        # noted.
        self._debt_s = self._paid_s = 0.0

    def is_modest(self, paid_s: float) -> bool:
        """Tells whether it asks for little; `paid_s`: taken off of debts since the start."""
        return self._debt_s - (paid_s - self._paid_s) < _PAYER_LIGHT_S

    def count(self, used_s: float, paid_s: float) -> None:
        """Counts what one of its connections used."""
        debt_s = max(self._debt_s - (paid_s - self._paid_s), 0.0) + used_s
        self._debt_s, self._paid_s = min(debt_s, _PAYER_DEBT_MAX_S), paid_s


class Share:
    """That of one connection."""

    __slots__ = (
        "_address", "_begun_s", "_debt_s", "_is_exact", "_paid_idle_s", "_paid_s", "_payer",
        "_shares", "end_s", "is_heavy",
    )  # fmt: skip

    def __init__(self, shares: "TurnShares") -> None:
        """Begins without debt."""
        self._shares = shares
        # Of the work under way: in processor time, or on the clock where nobody is in the way.
        self._begun_s = 0.0
        self._is_exact = False
        # What it owes, and what was taken off of everybody's debts when that was noted.
        self._debt_s = 0.0
        self._paid_s = 0.0
        # What was taken off by then of the debts of those who have nothing left to be done.
        self._paid_idle_s = 0.0
        # Who pays; None until something was worked on, and where nobody says. Before that, and as
        # long as the connection is there, its address.
        self._payer: Payer | None = None
        self._address: Payer | None = None
        # When that of this turn is used, seconds on the clock.
        self.end_s = 0.0
        # Whether the connection asks for much.
        self.is_heavy = False

    @property
    def is_new(self) -> bool:
        """Whether nobody knows yet whose the connection is."""
        return self._payer is None

    @property
    def rank_s(self) -> float:
        """Its place among those who ask for much: who owes less stands before who owes more.

        Something is taken off of all debts alike, and later ones have less of that behind them.
        """
        return self._debt_s + self._paid_s

    def begin(self, now_s: float, address: str = "") -> bool:
        """Tells whether what was just read may be worked on, or waits in the line; nothing of the
        connection was waiting.

        Args:
            now_s: seconds on the clock.
            address: where the peer is; counts until it is known whose the connection is.
        """
        shares = self._shares
        if self._address is None and address:
            self._address = shares.payer(network_of(address))
        payer = self._payer or self._address
        paid_idle_s = shares.paid_idle_s(now_s)
        if self._debt_s:
            self._debt_s = max(self._debt_s - (paid_idle_s - self._paid_idle_s), 0.0)
            self._paid_idle_s, self._paid_s = paid_idle_s, shares.paid_s(now_s)
        self.is_heavy = (self.is_heavy and self._debt_s >= LIGHT_S) or (
            payer is not None
            and not payer.is_modest(paid_idle_s)
            and shares.has_modest_beside(payer, now_s)
        )
        left_s = shares.left_s(now_s, is_heavy=self.is_heavy, is_new=self.is_new)
        if left_s <= 0 or (self.is_heavy and shares.stands_before(self.rank_s)):
            return False
        self._begin(now_s, left_s)
        return True

    def begin_anew(self, now_s: float) -> None:
        """Begins the share of one that comes from the line: one request at least."""
        left_s = self._shares.left_s(now_s, is_heavy=self.is_heavy, is_new=self.is_new)
        self._begin(now_s, left_s)

    def _begin(self, now_s: float, left_s: float) -> None:
        shares = self._shares
        # Who turns out to ask for much stands behind those who wait for that reason.
        is_new_among_many = shares.is_crowded and not self.is_heavy
        self.end_s = now_s + min(LIGHT_S if is_new_among_many else shares.share_s, left_s)
        # Asking for processor time costs as much as a small request's tenth.
        self._is_exact = shares.is_busy
        self._begun_s = shares.processor_s() if self._is_exact else now_s

    def end(self, now_s: float, payer: str = "") -> None:
        """Counts what was used; `payer` is whose account or address it is for."""
        used_s = (self._shares.processor_s() if self._is_exact else now_s) - self._begun_s
        was_heavy, was_new = self.is_heavy, self.is_new
        owed_s = used_s if self._is_exact else min(used_s, _INEXACT_MAX_S)
        self._debt_s = debt_s = min(self._debt_at(now_s) + owed_s, _DEBT_MAX_S)
        self._paid_s = self._shares.paid_s(now_s)
        self._paid_idle_s = paid_idle_s = self._shares.paid_idle_s(now_s)
        if payer:
            if self._payer is None and self._address is not None and payer != self._address.name:
                self._address.count(owed_s, paid_idle_s)
            if self._payer is None or self._payer.name != payer:
                self._payer = self._shares.payer(payer)
            self._payer.count(owed_s, paid_idle_s)
            if self._payer.is_modest(paid_idle_s):
                self._shares.note_modest(self._payer, now_s)
        # Who asked for much does until all of that is done.
        self.is_heavy = was_heavy or debt_s >= LIGHT_S
        self._shares.note(
            used_s, now_s, is_heavy=self.is_heavy, was_heavy=was_heavy, was_new=was_new
        )

    def _debt_at(self, now_s: float) -> float:
        return max(self._debt_s - (self._shares.paid_s(now_s) - self._paid_s), 0.0)


class TurnShares:
    """The turns of one reactor and the line of one server; all in the reactor's thread.

    Invariant: while somebody waits, and while something of this turn is used that is worth a call,
    a call for the next turn is due.
    """

    __slots__ = (
        "_asked_s", "_begun_s", "_call", "_carried_s", "_clock", "_crowded_s", "_heavy",
        "_heavy_used_s", "_idle_at", "_known_at", "_later_s", "_light", "_light_at", "_modest",
        "_modest_at", "_new", "_new_used_s", "_numbers", "_paid_idle_s", "_paid_s", "_payers",
        "_turn_s", "_used_s", "processor_s", "share_s",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        *,
        share_s: float = SHARE_S,
        turn_s: float = TURN_S,
        crowded_s: float = CROWDED_S,
        processor_s: Callable[[], float] | None = None,
    ) -> None:
        """Begins with nobody in the line.

        Args:
            clock: the reactor.
            share_s: seconds of a turn that one connection may use.
            turn_s: the same for all together.
            crowded_s: the same for those that ask for much while there are others.
            processor_s: tells the processor time of this thread in seconds; None: the clock's.
        """
        assert share_s > 0 and 0 < crowded_s <= turn_s
        self._clock = clock
        self.processor_s = processor_s or clock.seconds
        self.share_s = share_s
        self._turn_s = turn_s
        self._crowded_s = crowded_s
        # What this turn, and those before it that used next to nothing, used; and of that those
        # who ask for much, and those of whom nobody knew whose they are.
        self._used_s = self._heavy_used_s = self._new_used_s = 0.0
        # What those who ask for much took beyond their part of former turns.
        self._carried_s = 0.0
        # A usual turn: what its requests take, and all else, in seconds.
        self._asked_s, self._later_s = LIGHT_S, 0.0
        # Processor time at which this turn began.
        self._begun_s = 0.0
        # Taken off of everybody's debts since the start, and of those who had nothing left to be
        # done; and since when there is no work, seconds on the clock, None: there is.
        self._paid_s = self._paid_idle_s = 0.0
        self._idle_at: float | None = clock.seconds()
        # Seconds on the clock: when one that asks for little was last served, and one that is
        # known for it.
        self._light_at = self._known_at = float("-inf")
        # Whose connections are here; who of them was last served as one that asks for little, and
        # when, seconds on the clock.
        self._payers: WeakValueDictionary[str, Payer] = WeakValueDictionary()
        self._modest: Payer | None = None
        self._modest_at = float("-inf")
        # The line: those that ask for little, behind them those of whom nobody knows whose they
        # are, and then, as a heap, those that ask for much: rank, and a number that decides among
        # equals.
        self._light: deque[Waiting] = deque()
        self._new: deque[Waiting] = deque()
        self._heavy: list[tuple[float, int, Waiting]] = []
        self._numbers = count()
        self._call: DelayedCall | None = None

    def __len__(self) -> int:
        return len(self._light) + len(self._new) + len(self._heavy)

    @property
    def is_crowded(self) -> bool:
        """Whether one that asks for much stands in the line."""
        return bool(self._heavy)

    def payer(self, name: str) -> Payer:
        """Returns the payer of that name."""
        payer = self._payers.get(name)
        if payer is None:
            payer = self._payers[name] = Payer(name)
        return payer

    def note_modest(self, payer: Payer, now_s: float) -> None:
        """Something was done for somebody who asks for little."""
        self._modest, self._modest_at = payer, now_s

    def has_modest_beside(self, payer: Payer, now_s: float) -> bool:
        """Tells whether somebody else is there who asks for little."""
        return self._modest is not payer and now_s - self._modest_at < _MEMORY_S

    def stands_before(self, rank_s: float) -> bool:
        """Tells whether somebody stands before another one that asks for much."""
        return bool(self._heavy) and self._heavy[0][0] <= rank_s

    @property
    def is_busy(self) -> bool:
        """Whether so much of this turn is used that who asks for much makes a difference."""
        return self._call is not None

    def left_s(self, now_s: float, *, is_heavy: bool, is_new: bool) -> float:
        """Returns what a connection may use of what is left of this turn, in seconds.

        For those who ask for much, and for newcomers beside those that are known, what the others
        used does not count: so many may ask for little each that nothing would be left, turn after
        turn.
        """
        if is_heavy:
            return self._heavy_s(now_s) - self._heavy_used_s - self._carried_s
        if is_new and now_s - self._known_at < _MEMORY_S:
            return self._part_of(self._crowded_s) - self._new_used_s
        return self._light_left_s

    def paid_s(self, now_s: float) -> float:
        """Returns what was taken off of everybody's debts since the start, in seconds."""
        return self._paid_s + self._paid_since_s(now_s)

    def paid_idle_s(self, now_s: float) -> float:
        """Returns the same for those who had nothing left to be done."""
        return self._paid_idle_s + self._paid_since_s(now_s)

    def _paid_since_s(self, now_s: float) -> float:
        return 0.0 if self._idle_at is None else (now_s - self._idle_at) * _PAID_BACK

    def note(
        self, used_s: float, now_s: float, *, is_heavy: bool, was_heavy: bool, was_new: bool
    ) -> None:
        """Counts what a connection used of this turn; it asks, and asked, for much, or not, and it
        was known whose it is, or not.
        """
        self._used_s += used_s
        if is_heavy or was_heavy:
            self._heavy_used_s += used_s
        if was_new:
            self._new_used_s += used_s
        if not is_heavy:
            self._light_at = now_s
            if not was_new:
                self._known_at = now_s
        if self._used_s >= LIGHT_S:
            self._call_next_turn()

    def wait(self, connection: Waiting, share: Share) -> None:
        """Puts a connection into the line; it must not stand there already."""
        if share.is_heavy:
            heappush(self._heavy, (share.rank_s, next(self._numbers), connection))
        else:
            (self._new if share.is_new else self._light).append(connection)
        self._call_next_turn()

    def stop(self) -> None:
        """Leaves no delayed call; those in the line wait for ever."""
        self._light.clear()
        self._new.clear()
        self._heavy.clear()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _part_of(self, turn_s: float) -> float:
        """Returns what of some time is for requests, the rest being for what they cause."""
        return turn_s / (1.0 + min(self._later_s / max(self._asked_s, 1e-6), _CAUSED_MAX))

    @property
    def _light_left_s(self) -> float:
        of_light_s = self._part_of(self._turn_s * _LIGHT_PART)
        left_s = of_light_s - (self._used_s - self._heavy_used_s)
        return min(left_s, self._part_of(self._turn_s) - self._used_s)

    def _heavy_s(self, now_s: float) -> float:
        is_alone = now_s - self._light_at >= _MEMORY_S
        return self._part_of(self._turn_s if is_alone else self._crowded_s)

    def _call_next_turn(self) -> None:
        if self._call is None:
            self._call = self._clock.callLater(0, self._take_turn)
            if self._idle_at is not None:
                paid_s = self._paid_since_s(self._clock.seconds())
                self._paid_s += paid_s
                self._paid_idle_s += paid_s
                self._idle_at = None
                self._begun_s = self.processor_s() - self._used_s

    def _take_turn(self) -> None:
        """Lets those who stand in the line go on, each once, until the turn's part is used."""
        self._call = None
        self._end_turn()
        heavy_s = self._heavy_s(self._clock.seconds())
        carried_s = self._carried_s + self._heavy_used_s - heavy_s
        self._carried_s = min(max(carried_s, 0.0), _CARRIED_MAX_S)
        self._used_s = self._heavy_used_s = self._new_used_s = 0.0
        # Whoever comes back to the line is served in another turn.
        for _ in range(len(self._light)):
            if self._light_left_s <= 0 or not self._light:
                break
            self._light.popleft().go_on()
        for _ in range(len(self._new)):
            left_s = self.left_s(self._clock.seconds(), is_heavy=False, is_new=True)
            if left_s <= 0 or not self._new:
                break
            self._new.popleft().go_on()
        # Here it may be served again, while nobody owes less.
        for _ in range(len(self._heavy)):
            if self._heavy_used_s >= heavy_s - self._carried_s or not self._heavy:
                break
            heappop(self._heavy)[2].go_on()
        if len(self):
            self._call_next_turn()
        if self._call is None:
            self._idle_at = self._clock.seconds()

    def _end_turn(self) -> None:
        """Learns from the turn before, and takes something off of debts for it."""
        processor_s = self.processor_s()
        turn_s, self._begun_s = processor_s - self._begun_s, processor_s
        self._asked_s += (self._used_s - self._asked_s) * _NEWS
        self._later_s += (max(turn_s - self._used_s, 0.0) - self._later_s) * _NEWS
        paid_s = max(self._heavy_used_s * _PAID_BACK_OF_GIVEN, turn_s * _PAID_BACK_TOGETHER)
        paid_idle_s = turn_s * _PAID_BACK
        self._paid_idle_s += paid_idle_s
        self._paid_s += min(paid_idle_s, paid_s / max(len(self._heavy), 1))
