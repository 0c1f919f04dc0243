"""What watchers made of replayed records is durable before the mark says that they saw them, and
what they knew by then is told to the next opening.
"""

from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from ledgermq.testing.simulation.disk import SimDisk
from tests.fault.lossy_disk import new_disk
from tests.unit.commitlog.single_member import HOST, Broker

MARK = "/store/dispatch.checkpoint"


def test_what_is_replayed_is_saved_before_the_first_mark() -> None:
    """A process that ended right after its start would else have a mark behind the records, and
    a state file from before them."""
    disk = new_disk()
    broker = Broker("/store", file_system=disk)
    broker.lead()
    record = AppendMessage("state", 0, 0, TRANSACTION_PREPARED, 0, HOST, HOST, 0, 0, b"new", b"")
    broker.send(record)
    broker.kill()

    again = Broker("/store", file_system=disk, open_store=False)
    seen: list[bytes] = []
    marks_at_save: list[bytes] = []
    again.store.watch_topic("state", lambda body, index: seen.append(body))
    before = disk.texts[MARK]
    again.store.open(lambda _: not marks_at_save.append(disk.texts[MARK]))
    assert seen == [b"new"]
    assert marks_at_save == [before]
    assert disk.texts[MARK] != before


def _opened(disk: SimDisk, sweep_index: int) -> tuple[Broker, list[int]]:
    """A broker whose watchers know of such a sweep, and what its opening told them."""
    broker = Broker("/store", file_system=disk, open_store=False)
    told: list[int] = []
    broker.store.keep_state(lambda: (sweep_index, None), told.append)
    broker.store.open()
    return broker, told


def test_a_mark_keeps_where_the_state_was_told() -> None:
    disk = new_disk()
    first, told = _opened(disk, 17)
    # Nothing was there to be told of.
    assert told == []
    first.lead()
    first.store.flush()
    first.kill()
    second, told = _opened(disk, -1)
    assert told == [17]
    second.store.checkpoints.discard()
    second.kill()
    # All is made again: whoever copied another store over this one has not copied its state.
    assert _opened(disk, -1)[1] == []
