"""LedgerStorage: what a broker on a ledger says of the files that it finds."""

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.storage.ledger_storage import LedgerStorage
from ledgermq.commitlog import StoreLostError
from ledgermq.dledger.store.errors import StoreFailedError
from tests.unit.broker.parts import Parts


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
