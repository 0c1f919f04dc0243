"""LedgerStorage: what a broker on a ledger says of the files that it finds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from ledgermq.broker.config import load_broker_config
from ledgermq.broker.service.storage import LedgerStorage
from tests.unit.broker.parts import Parts


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    def observe(event: Any) -> None:
        lines.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


def test_nothing_is_written_to_a_directory_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = load_broker_config(None, {"storePathRootDir": str(root)})
    storage = LedgerStorage(config, Clock(), Parts().state, lambda: 0)
    storage.open()
    root.rename(tmp_path / "moved")
    root.mkdir()
    (root / "lock").write_bytes(b"lock")
    storage.close()
    assert [path.name for path in root.iterdir()] == ["lock"]
    assert (tmp_path / "moved" / "abort").exists()


def test_a_ledger_without_its_front_says_so(tmp_path: Path, log_lines: list[str]) -> None:
    group = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-h:1", "dLegerSelfId": "n0"}
    sizes = {"mappedFileSizeDLedgerIndex": "32768", "mappedFileSizeCommitLog": "65536"}
    words = {"storePathRootDir": str(tmp_path), "maxMessageSize": "1024", **sizes, **group}
    config = load_broker_config(None, words)
    storage = LedgerStorage(config, Clock(), Parts().state, lambda: 0)
    storage.open()
    store = storage.ledger_store
    for position in (0, 65536):
        store.append(
            storage.codec.encode(
                [bytes(40_000)],
                first_index=store.last_index + 1,
                term=1,
                position=position,
                previous_chain_crc=store.last_chain_crc,
            )
        )
    storage.close()
    (tmp_path / "dledger-n0/data" / f"{0:020d}").unlink()
    log_lines.clear()
    again = LedgerStorage(config, Clock(), Parts().state, lambda: 0)
    again.open()
    again.close()
    assert log_lines[0] == (
        "ledger: begins at position 65536, and by its mark at 0: the files between, with entries"
        f" before 1, are gone from {tmp_path}/dledger-n0/data, and nothing of this broker removed"
        " them"
    )
