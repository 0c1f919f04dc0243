"""Rules of access control in a simulated group: an operator who changes them, and what members go
by.

Nobody here opens them: they are a text of their own and a time.

I46  what a member goes by is committed; what an operator was told is in force is the last word on
     every member that has applied it, and a sweep says the last word
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import BrokerError
from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.rules import SimRules

_EVERY_MS: Final = 1_200.0
_CHANGES_MAX: Final = 8
# Two that are asked for at once: the second is made on top of the first.
_TWICE_CHANCE: Final = 0.3

_Record = Mapping[str, Any]


class RulesWatch:
    """What the log says of the rules."""

    def __init__(self, hit: Callable[[str], None]) -> None:
        """There are none."""
        self._hit = hit
        # The texts that were ever committed, and the last of them with the record that said so.
        self._committed: set[str] = set()
        self._last: tuple[int, _Record] | None = None

    def on_record(self, index: int, value: Mapping[str, Any]) -> None:
        """A record of the state is committed."""
        if value["kind"] == "access":
            known = self._last
            is_later = known is None or value["changed"] >= known[1]["changed"]
            demand(is_later, "I46 rules go back", index, value, known)
            self._committed.add(value["sealed"])
            self._last = (index, value)
        elif value.get("table") == "rules":
            told = [entry["sealed"] for entry in value["put"].values()]
            expected = [] if self._last is None else [self._last[1]["sealed"]]
            demand(told == expected, "I46 a sweep tells other rules", index, told, expected)
            if self._last is not None:
                # Members that begin behind the record that said so have them from here on.
                self._last = (index, self._last[1])

    def on_acked(self, sealed: str) -> None:
        """An operator was told that rules are in force."""
        demand(sealed in self._committed, "I46 rules acknowledged and not committed", sealed)
        self._hit("rules acknowledged")

    def look(self, member_id: str, rules: SimRules) -> None:
        """A member has done something, and what it has committed is known: I46."""
        found = rules.in_force
        is_known = found is None or found["sealed"] in self._committed
        demand(is_known, "I46 in force and not committed", member_id, found)

    def check(self, member_id: str, state: BrokerState, applied_index: int | None) -> None:
        """I46 of one member, as `TableWatch.check`."""
        in_force = None if state.access is None else state.access.to_record()
        if self._last is not None and (applied_index is None or self._last[0] <= applied_index):
            index, expected = self._last
            for found in (in_force, state.access_record.record):
                # Or later ones, which are looked at when the turn is over.
                is_there = found is not None and found["changed"] >= expected["changed"]
                demand(is_there, "I46 rules lost", member_id, index, found, expected)


class RulesOperator:
    """Asks whoever leads for other rules, now and then."""

    def __init__(
        self,
        timeline: Timeline,
        members: Mapping[str, SimMember],
        watch: RulesWatch,
        rng: random.Random,
    ) -> None:
        self._timeline = timeline
        self._members = members
        self._watch = watch
        self._rng = rng
        self._count = 0

    def begin(self) -> None:
        """Plans the first change."""
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_one)

    def _ask_one(self) -> None:
        if self._count >= _CHANGES_MAX:
            return
        self._timeline.at(self._rng.expovariate(1 / _EVERY_MS), self._ask_one)
        times = 2 if self._rng.random() < _TWICE_CHANCE else 1
        for member in self._members.values():
            broker = member.broker
            is_up = member.reactor is not None and not member.is_paused
            if is_up and broker is not None and broker.leadership.is_serving:
                for _ in range(times):
                    member.enter(self.ask, member)
                return

    def ask(self, member: SimMember) -> None:
        """Asks a member that serves."""
        broker = member.broker
        if broker is None or not broker.leadership.is_serving:
            return
        self._count += 1
        incarnation, sealed = member.incarnation, f"rules-{self._count}"

        def make(coming: _Record | None) -> _Record:
            before = [one for one in (coming, broker.rules.in_force) if one is not None]
            changed_ms = max([member.wall_ms(), *(one["changed"] + 1 for one in before)])
            return {"kind": "access", "changed": changed_ms, "sealed": sealed}

        def done(error: BrokerError | None) -> None:
            if error is None and member.incarnation == incarnation:
                self._timeline.at(0.0, self._watch.on_acked, sealed)

        broker.state.access_changes.change(make, done)
