"""What watchers made of replayed records is durable before the mark says that they saw them."""

from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
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
    again.store.open(lambda: not marks_at_save.append(disk.texts[MARK]))
    assert seen == [b"new"]
    assert marks_at_save == [before]
    assert disk.texts[MARK] != before
