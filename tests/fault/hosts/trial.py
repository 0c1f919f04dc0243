"""One fault from its begin until nothing of it is left, with the times that it took."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from tests.fault.hosts.cluster import Change, Cluster
from tests.fault.hosts.faults import Fault, Scene
from tests.fault.hosts.load import Load
from tests.fault.hosts.observer import Observer
from tests.waiting import wait_until

# What has not healed by then is restarted by hand.
PATIENCE_S = 150.0
# Never set: only waited for.
_PAUSE = threading.Event()


class Outcome(NamedTuple):
    """What one fault did; all times in seconds."""

    name: str
    title: str
    # The longest time without an acknowledgement, from the begin until all had healed.
    gap_s: float
    # From the end of the fault to the next acknowledgement; None when none came.
    first_s: float | None
    # The longest time without a delivery, from the begin until the consumer had all of that.
    silent_s: float
    # From the end of the fault until all three counted and showed all that was acknowledged.
    healed_s: float | None
    # From the begin until another broker served; None when the leader stayed, or none came.
    replaced_s: float | None
    # Acknowledgements a second while it lasted.
    acks_s: float
    # Processes that ended without being asked.
    end_count: int
    # Load average of the machine when it was over: how starved all of it was.
    load: float

    @property
    def by_hand(self) -> bool:
        """Whether it took a restart by hand."""
        return self.healed_s is None


@dataclass
class Trials:
    """Plays faults, one after the other, on a cluster under load."""

    scene: Scene
    load: Load
    observer: Observer
    # What happened when, for who wants to know why.
    story: TextIO
    # When the fault before ended.
    _ended_s: float = 0.0

    @property
    def _cluster(self) -> Cluster:
        return self.scene.cluster

    def play(self, fault: Fault, hold_s: float, calm_s: float) -> Outcome:
        """Does it, undoes it, and waits until all is well.

        Args:
            fault: what is done.
            hold_s: how long it lasts.
            calm_s: how long nothing is done before it, when it does not say itself.

        Raises:
            AssertionError: not even restarts help.
        """
        rest_s = self._ended_s + fault.after_s - time.monotonic() if fault.after_s else calm_s
        _PAUSE.wait(max(0.0, rest_s))
        cluster, acks = self._cluster, self.load.acks
        leader = cluster.wait_for_leader()
        change_count = len(cluster.changes)
        begun_s = time.monotonic()
        undo = fault.begin(self.scene)
        _PAUSE.wait(max(0.0, begun_s + hold_s - time.monotonic()))
        undo()
        ended_s = self._ended_s = time.monotonic()
        healed_s = self._wait_until_healed(ended_s)
        # The watching thread goes on.
        changes = cluster.changes[change_count:]
        if healed_s is None:
            self._restart()
        over_s = healed_s or time.monotonic()
        self._wait_until_delivered(acks.ends())
        silent_s = self.load.deliveries.longest_gap(begun_s, time.monotonic())
        first_s = acks.first_after(ended_s)
        self._tell(fault, leader, changes, begun_s, ended_s, first_s, healed_s)
        successor_s = [
            change.at_s
            for change in changes
            if change.text == "LEADER serves" and change.name != leader
        ]
        return Outcome(
            fault.name,
            fault.title.format(hold_s=hold_s),
            gap_s=acks.longest_gap(begun_s, over_s),
            first_s=None if first_s is None else first_s - ended_s,
            silent_s=silent_s,
            healed_s=None if healed_s is None else healed_s - ended_s,
            replaced_s=successor_s[0] - begun_s if successor_s else None,
            acks_s=acks.count(begun_s, ended_s) / (ended_s - begun_s),
            end_count=sum(change.text.startswith("ended") for change in changes),
            load=os.getloadavg()[0],
        )

    def _wait_until_healed(self, ended_s: float) -> float | None:
        """Returns when all had healed; None when the patience was at its end before."""
        try:
            self._wait_until_counted(ended_s)
        except AssertionError as error:
            self.story.write(f"not healed: {error} {getattr(error, '__notes__', '')}\n")
            return None
        return time.monotonic()

    def wait_until_whole(self, since_s: float) -> None:
        """Waits until all count, and until they and the consumer have all that was acknowledged."""
        self._wait_until_counted(since_s)
        self._wait_until_delivered(self.load.acks.ends())

    def _wait_until_counted(self, since_s: float) -> None:
        """Waits for an acknowledgement since then, and until all three count and show all that was
        acknowledged by then.
        """
        wait_until(
            lambda: self.load.acks.first_after(since_s),
            what="an acknowledgement",
            deadline_s=PATIENCE_S,
        )
        ends = self.load.acks.ends()
        lags: dict[str, int] = {}

        def is_whole() -> bool:
            lags.update(self.observer.lag(ends))
            return self._cluster.is_whole() and self.observer.has_reached(ends)

        try:
            wait_until(is_whole, what="three brokers that count", deadline_s=PATIENCE_S)
        except AssertionError as error:
            error.add_note(f"messages that they lack: {lags}")
            raise

    def _wait_until_delivered(self, ends: dict[int, int]) -> None:
        """Waits until the consumer was given the last messages before these offsets."""

        def is_delivered() -> bool:
            given = self.load.deliveries.ends()
            return all(given.get(queue, 0) >= end for queue, end in ends.items())

        wait_until(is_delivered, what="all deliveries", deadline_s=PATIENCE_S)

    def _restart(self) -> None:
        """What somebody would do by hand."""
        self.story.write("all brokers are restarted by hand\n")
        self._cluster.restart()
        self._wait_until_counted(time.monotonic())

    def _tell(
        self,
        fault: Fault,
        leader: str,
        changes: list[Change],
        begun_s: float,
        ended_s: float,
        first_s: float | None,
        healed_s: float | None,
    ) -> None:
        """Writes down what happened, in seconds from the begin."""
        own = [
            Change(begun_s, leader, f"leads; {fault.title} begins"),
            Change(ended_s, "fault", "ends"),
            *([Change(first_s, "clients", "first acknowledgement")] if first_s else []),
            *([Change(healed_s, "all", "healed")] if healed_s else []),
        ]
        for change in sorted([*own, *changes]):
            self.story.write(f"{change.at_s - begun_s:8.2f} {change.name:8} {change.text}\n")
        self.story.flush()
