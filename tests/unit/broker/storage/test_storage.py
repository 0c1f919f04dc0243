"""LedgerStorage: what a broker on a ledger says of the files that it finds."""

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from ledgermq.broker.config.broker_config import change_settings, load_broker_config
from ledgermq.broker.storage.ledger_storage import LedgerStorage
from ledgermq.commitlog import CleanDecision, CleanReason, StoreLostError, opening_record
from ledgermq.dledger.store.errors import CorruptStoreError, StoreFailedError
from tests.unit.broker.parts import HOST, Parts
from tests.unit.commitlog.single_member import SingleMember
from tests.unit.dledger.hand_pool import DirectReactor, HandPool


class DirectClock(DirectReactor, Clock):
    """Time in the test's hand, and calls from a thread arrive at once."""


def test_nothing_is_written_to_a_directory_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = load_broker_config(None, {"storePathRootDir": str(root)})
    storage = LedgerStorage(config, Clock(), Parts().state, lambda: 0)
    storage.open()
    root.rename(tmp_path / "moved")
    root.mkdir()
    (root / "lock").write_bytes(b"lock")
    with pytest.raises(StoreLostError):
        storage.check_held()
    with pytest.raises(StoreFailedError, match="is not the file that this broker locked"):
        storage.ledger_store.sync()
    storage.close()
    assert [path.name for path in root.iterdir()] == ["lock"]
    assert (tmp_path / "moved" / "abort").exists()


def test_files_that_retention_takes_are_counted_by_their_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"storePathRootDir": str(tmp_path / "store"), "maxMessageSize": "61440"}
    values["mappedFileSizeCommitLog"] = "65536"
    config = load_broker_config(None, values)
    pool = HandPool(holds=False)
    storage = LedgerStorage(config, DirectClock(), Parts().state, lambda: 0, pool)
    storage.open()
    ledger = SingleMember(storage.ledger_store, storage.codec)
    record = opening_record(1, HOST, 1)
    while storage.ledger_store.end_position < 3 * 65_536:
        ledger.propose([record] * 100)
    assert storage.dropped_files == dict.fromkeys(storage.dropped_files, 0)

    def clean(drop_before: int, reason: CleanReason) -> None:
        decision = CleanDecision(drop_before, reason, False)
        monkeypatch.setattr(storage.messages, "decide_clean", lambda *_, **__: decision)
        storage.clean(0, 4, 0)

    pool.holds = True
    for _ in range(9):
        clean(2 * 65_536, CleanReason.HOUR)
    assert len(pool.work) == 1, "a disk that hangs has one job to drop files"
    pool.holds = False
    pool.finish_all()
    clean(0, CleanReason.NONE)
    clean(3 * 65_536, CleanReason.DISK_FORCED)
    assert len(storage.ledger_store.data.starts) == 1
    assert {why.name: count for why, count in storage.dropped_files.items()} == {
        "HOUR": 2, "DISK": 0, "DISK_FORCED": 1, "ASKED": 0,
    }  # fmt: skip
    storage.abandon()


def test_an_age_that_is_changed_while_the_broker_runs_counts_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"storePathRootDir": str(tmp_path / "store"), "fileReservedTime": "10"}
    config = load_broker_config(None, values)
    storage = LedgerStorage(config, Clock(), Parts().state, lambda: 0)
    storage.open()
    hours: list[object] = []

    def decide(*_: object, reserved_hours: int, **__: object) -> CleanDecision:
        hours.append(reserved_hours)
        return CleanDecision(0, CleanReason.NONE, False)

    monkeypatch.setattr(storage.messages, "decide_clean", decide)
    storage.clean(0, 4, 0)
    change_settings(config, {"fileReservedTime": "1"})
    storage.clean(0, 4, 0)
    assert hours == [10, 1]
    storage.abandon()


def test_damage_is_counted(tmp_path: Path) -> None:
    config = load_broker_config(None, {"storePathRootDir": str(tmp_path / "store")})
    storage = LedgerStorage(config, Clock(), Parts().state, lambda: 0)
    storage.open()
    assert storage.damage_count == 0
    storage.distrust(CorruptStoreError("data", 7, "checksum", 1, 2, 3))
    assert storage.damage_count == 1
    storage.close()
