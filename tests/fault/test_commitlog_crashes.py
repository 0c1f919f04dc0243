"""The message store, stopped before any operation of a workload, by a kill and by a power cut.

After each stop the store opens again (and is stopped while it opens, too), takes up the lead, and
must then say exactly what the log says: every unit of every queue, in order, without a hole, and
every key. The disk keeps of unsynced pages and names whatever the draw leaves.
"""

import random

import pytest

from ledgermq.testing.simulation.disk import MachineStoppedError
from tests.fault.lossy_disk import cut_power, new_disk, stop_after
from tests.fault.message_workload import MessageWorkload, check_queues
from tests.unit.commitlog.single_member import message


def stop_and_recover(seed: int, stop_at: int, *, power: bool) -> None:
    disk = new_disk()
    rng = random.Random(seed * 1000 + stop_at)
    workload = MessageWorkload(disk, seed)
    stop_after(disk, stop_at)
    try:
        workload.run(60)
    except MachineStoppedError:
        pass
    for _ in range(3):
        disk.restart()
        if power:
            cut_power(disk, rng)
        # The first openings are stopped somewhere, too.
        stop_after(disk, rng.randrange(1, 25))
        try:
            workload.open()
        except MachineStoppedError:
            continue
        break
    disk.restart()
    if power:
        cut_power(disk, rng)
    workload.open()
    check_queues(workload.broker)
    workload.broker.send(message(b"%d after" % workload.number, "T0", 0))
    check_queues(workload.broker)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_store_says_what_the_log_says_after_a_stop_anywhere(seed, power):
    disk = new_disk()
    MessageWorkload(disk, seed).run(60)
    rng = random.Random(seed)
    for stop_at in sorted(rng.sample(range(1, disk.step_count), 25)):
        try:
            stop_and_recover(seed, stop_at, power=power)
        except BaseException as error:
            error.add_note(f"replay: stop_and_recover({seed}, {stop_at}, power={power})")
            raise
