"""A record that a watcher does not read ends dispatch before it: the next program goes on there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.commitlog import AppendMessage, UnreadRecordError
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from tests.fault.lossy_disk import new_disk
from tests.unit.commitlog.single_member import HOST, Broker
from tests.unit.commitlog.test_plain_store import Plain
from tests.unit.commitlog.test_plain_store import message as plain_message


def record(body: bytes, topic: str = "Watched") -> AppendMessage:
    flag = TRANSACTION_PREPARED if topic == "Watched" else 0
    return AppendMessage(topic, 0, 0, flag, 0, HOST, HOST, 0, 0, body, b"")


class Watcher:
    """A program that reads all records, or all but those that begin with "new"."""

    def __init__(self, *, is_older: bool) -> None:
        self._is_older = is_older
        self.seen: list[bytes] = []

    def take(self, body: bytes, index: int) -> None:
        if self._is_older and body.startswith(b"new"):
            raise UnreadRecordError("a record", index=index, found="b", reads="a", remedy="wait")
        self.seen.append(body)


def test_a_ledger_is_dispatched_up_to_the_record_and_from_it_on() -> None:
    disk = new_disk()
    broker = Broker("/store", file_system=disk)
    watcher = Watcher(is_older=True)
    broker.store.watch_topic("Watched", watcher.take)
    broker.lead()
    with pytest.raises(UnreadRecordError, match="a record at index 3 has b, this program reads a"):
        broker.send(record(b"old"), record(b"m1", "T"), record(b"new 1"), record(b"new 2"))
    assert watcher.seen == [b"old"]
    store = broker.store
    assert isinstance(store.failure, UnreadRecordError)
    assert store.dispatched_index == 2 and store.max_offset("T", 0) == 1
    # What a flush in the last moments of the program says is durable.
    store.flush()
    broker.kill()

    older = Broker("/store", file_system=disk, open_store=False)
    again = Watcher(is_older=True)
    older.store.watch_topic("Watched", again.take)
    with pytest.raises(UnreadRecordError):
        older.store.open()
    assert again.seen == []
    older.kill()

    newer = Broker("/store", file_system=disk, open_store=False)
    last = Watcher(is_older=False)
    newer.store.watch_topic("Watched", last.take)
    newer.store.open()
    assert last.seen == [b"new 1", b"new 2"]
    assert newer.store.max_offset("T", 0) == 1


def test_a_plain_log_is_dispatched_up_to_the_record_and_from_it_on(tmp_path: Path) -> None:
    plain = Plain(tmp_path)
    watcher = Watcher(is_older=True)
    plain.store.watch_topic("Watched", watcher.take)
    plain.open()
    place = plain.append(
        [plain_message(body, "Watched", sys_flag=4) for body in ("old", "new 1", "new 2")]
    )[1].physical_offset
    with pytest.raises(UnreadRecordError):
        plain.confirm()
    assert watcher.seen == [b"old"] and plain.store.dispatched_index == place - 1
    plain.store.flush()
    plain.store.abandon()
    plain.log.close()

    newer = Plain(tmp_path)
    last = Watcher(is_older=False)
    newer.store.watch_topic("Watched", last.take)
    newer.open()
    assert last.seen == [b"new 1", b"new 2"]
