"""The simulated disk in the hands of one test: stopped where the test says, torn as it draws."""

import random

from ledgermq.testing.simulation.disk import SimDisk


def new_disk() -> SimDisk:
    """An empty disk; nobody counts what happens to it."""
    return SimDisk(random.Random(0), lambda name: None)


def stop_after(disk: SimDisk, count: int) -> None:
    """The machine stops when so many more operations are done, in the next one."""
    disk.stop_at = disk.step_count + count + 1


def cut_power(disk: SimDisk, rng: random.Random) -> None:
    """What was not synced is kept or lost, as the test draws it."""
    disk._rng = rng
    disk.cut_power()
