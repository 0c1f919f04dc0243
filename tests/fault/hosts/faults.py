"""The faults: what is done to hosts, and how it is undone."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.fault.hosts.cluster import NAME_SERVER, Cluster
from tests.fault.hosts.links import Way
from tests.fault.hosts.network import Network
from tests.fault.up_group import NODES

_HOUR_S = 3600.0
# Beyond fileReservedTime: to a clock that is believed, all that is stored is old.
_FAR_AHEAD_S = 103 * _HOUR_S
_BACK_S = -2 * _HOUR_S
# Longer than the brokers take to look at their disks (cleanResourceInterval).
_LOOKS_S = 25.0


@dataclass(frozen=True)
class Scene:
    """What faults are done to."""

    cluster: Cluster
    network: Network
    rng: random.Random

    def leader(self) -> str:
        """The broker that leads when the fault begins."""
        return self.cluster.wait_for_leader()

    def follower(self) -> str:
        """One of the others."""
        return self.rng.choice(self.cluster.followers())


Undo = Callable[[], None]


@dataclass(frozen=True)
class Fault:
    """One kind."""

    # As it is chosen by.
    name: str
    # As it is told, with a place for the seconds.
    title: str
    # Seconds from its begin to its end.
    hold_s: float
    begin: Callable[[Scene], Undo]
    # Seconds that must have passed since the fault before it ended.
    after_s: float = 0.0


def _cut_leader(scene: Scene) -> Undo:
    scene.network.cut(scene.leader())
    return scene.network.heal


def _cut_leader_out(scene: Scene) -> Undo:
    scene.network.cut_out(scene.leader())
    return scene.network.heal


def _cut_leader_in(scene: Scene) -> Undo:
    scene.network.cut_in(scene.leader())
    return scene.network.heal


def _cut_follower(scene: Scene) -> Undo:
    scene.network.cut(scene.follower())
    return scene.network.heal


def _black_out(scene: Scene) -> Undo:
    scene.network.black_out()
    return scene.network.heal


def _cut_name_server_and_leader(scene: Scene) -> Undo:
    """The leader alone comes back at first: its successor is there, and nobody could tell."""
    scene.network.cut(NAME_SERVER, scene.leader())
    return scene.network.heal


def _disturb(way: Way) -> Callable[[Scene], Undo]:
    def begin(scene: Scene) -> Undo:
        scene.network.disturb(way)
        return scene.network.heal

    return begin


def _fill(scene: Scene, *nodes: str) -> Undo:
    disks = [scene.cluster.disks[node] for node in nodes]
    for disk in disks:
        disk.fill()

    def undo() -> None:
        for disk in disks:
            disk.grow()

    return undo


def _fill_leader(scene: Scene) -> Undo:
    return _fill(scene, scene.leader())


def _fill_two(scene: Scene) -> Undo:
    return _fill(scene, scene.leader(), scene.follower())


def _set_leaders_clock(seconds: float) -> Callable[[Scene], Undo]:
    def begin(scene: Scene) -> Undo:
        clock = scene.cluster.clocks[scene.leader()]
        clock.set(seconds)
        return lambda: clock.set(0)

    return begin


def _pause_leader(scene: Scene) -> Undo:
    leader = scene.leader()
    scene.cluster.signal(signal.SIGSTOP, leader)
    return lambda: scene.cluster.signal(signal.SIGCONT, leader)


def _kill_leader(scene: Scene) -> Undo:
    scene.cluster.signal(signal.SIGKILL, scene.leader())
    return lambda: None


def _kill_all(scene: Scene) -> Undo:
    scene.cluster.signal(signal.SIGKILL, *NODES)
    return lambda: None


def _wipe_follower(scene: Scene) -> Undo:
    scene.cluster.wipe(scene.follower())
    return lambda: None


# What belongs together is done one after the other.
FAULTS: tuple[tuple[Fault, ...], ...] = (
    (
        Fault("blackout", "blackout of {hold_s:g} s", 60, _black_out),
        Fault("leader-cut-again", "leader cut off, 30 s after that", 15, _cut_leader, after_s=30),
    ),
    (Fault("leader-cut", "leader cut off", 15, _cut_leader),),
    (Fault("leader-cut-out", "what the leader sends is dropped", 15, _cut_leader_out),),
    (Fault("leader-cut-in", "what is sent to the leader is dropped", 15, _cut_leader_in),),
    (Fault("follower-cut", "follower cut off", 15, _cut_follower),),
    (Fault("name-server-cut", "name server and leader cut off", 15, _cut_name_server_and_leader),),
    (Fault("leader-full", "disk of the leader full", 30, _fill_leader),),
    (Fault("two-full", "disks of the leader and a follower full", 30, _fill_two),),
    (
        Fault(
            "clock-ahead", "clock of the leader 103 h ahead", _LOOKS_S,
            _set_leaders_clock(_FAR_AHEAD_S),
        ),
    ),
    (Fault("clock-back", "clock of the leader 2 h back", _LOOKS_S, _set_leaders_clock(_BACK_S)),),
    (Fault("leader-paused", "leader stopped (SIGSTOP)", 15, _pause_leader),),
    (Fault("leader-killed", "leader killed", 5, _kill_leader),),
    (Fault("all-killed", "all killed", 5, _kill_all),),
    (Fault("follower-wiped", "disk of a follower emptied", 5, _wipe_follower),),
    (Fault("loss", "5 % of the packets lost", 20, _disturb(Way(loss=0.05))),),
    (Fault("delay", "packets 50 ms late", 20, _disturb(Way(delay_s=0.05))),),
    (
        Fault(
            "reorder", "a tenth of the packets overtaken", 20,
            _disturb(Way(late_share=0.1, late_s=0.02)),
        ),
    ),
)  # fmt: skip
NAMES = tuple(fault.name for faults in FAULTS for fault in faults)


def chosen(names: str) -> list[tuple[Fault, ...]]:
    """The faults of a list of names with commas between; all of them for `all`.

    Raises:
        ValueError: there is none of that name.
    """
    wanted = NAMES if names == "all" else tuple(name.strip() for name in names.split(","))
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise ValueError(f"no fault is named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    kept = [tuple(fault for fault in faults if fault.name in wanted) for faults in FAULTS]
    return [faults for faults in kept if faults]
