"""The steps of the real file system are judged: mistakes in their order are seen."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.broker.storage import state_files
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.dledger.store.errors import StoreError
from ledgermq.dledger.store.filesystem import RealFileSystem, _RealFile
from ledgermq.state.errors import StateFileError
from tests.fault.crash_states import (
    explore_files,
    explore_state_file,
    explore_votes,
    recorded_files,
)
from tests.fault.recording_disk import RecordingDisk, State

Replace = Callable[[RealFileSystem, str, bytes], None]
_OPEN = os.O_RDWR | os.O_CREAT | os.O_TRUNC


def replace_in_order(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)
    self.sync_directory(os.path.dirname(path))


def replace_renaming_first(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.replace(path + ".tmp", path)
        os.fsync(file.fileno())
    self.sync_directory(os.path.dirname(path))


def replace_without_sync(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path + ".tmp", "wb") as file:
        file.write(data)
    os.replace(path + ".tmp", path)
    self.sync_directory(os.path.dirname(path))


def replace_syncing_too_early(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        # What was written is still in the program.
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)
    self.sync_directory(os.path.dirname(path))


def replace_without_directory(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def replace_with_directory_first(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    self.sync_directory(os.path.dirname(path))
    os.replace(path + ".tmp", path)


def replace_in_place(self: RealFileSystem, path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    self.sync_directory(os.path.dirname(path))


def test_the_order_of_steps_that_the_mistakes_depart_from_is_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RealFileSystem, "replace", replace_in_order)
    explore_votes(1, 20)


@pytest.mark.parametrize(
    "replace",
    [
        replace_renaming_first,
        replace_without_sync,
        replace_syncing_too_early,
        replace_without_directory,
        replace_with_directory_first,
        replace_in_place,
    ],
)
def test_a_wrong_step_of_a_replacement_is_found_out(
    replace: Replace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFileSystem, "replace", replace)
    with pytest.raises((AssertionError, StoreError)):
        explore_votes(1, 20)


def look_at_create() -> None:
    """A kill anywhere leaves the name with its full size or not at all; a power cut after both
    syncs leaves zeros of that size.
    """

    def look(kind: str) -> None:
        for path, content in disk.content().items():
            assert path.endswith(".tmp") or len(content) == 8192, kind

    disk = RecordingDisk()
    disk.on_point = look
    with recorded_files(disk) as system:
        os.mkdir(system.root + "/data")
        path = system.root + "/data/0"
        file = RealFileSystem().reserve(path, 8192)
        file.sync()
        RealFileSystem().sync_directory(system.root + "/data")
        states: list[State] = list(disk.states(100, random.Random(1)))
        file.close()
    assert all(state[path] == bytes(8192) for state in states)


def create_with_name_first(self: RealFileSystem, path: str, size_bytes: int) -> _RealFile:
    number = os.open(path, _OPEN, 0o644)
    os.posix_fallocate(number, 0, size_bytes)
    return _RealFile(number)


def create_with_size_last(self: RealFileSystem, path: str, size_bytes: int) -> _RealFile:
    temporary = os.path.dirname(path) + ".tmp"
    number = os.open(temporary, _OPEN, 0o644)
    os.rename(temporary, path)
    os.posix_fallocate(number, 0, size_bytes)
    return _RealFile(number)


def test_a_new_file_has_its_name_and_its_size_together() -> None:
    look_at_create()


@pytest.mark.parametrize("create", [create_with_name_first, create_with_size_last])
def test_a_name_before_its_size_is_found_out(
    create: Callable[[RealFileSystem, str, int], _RealFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFileSystem, "reserve", create)
    with pytest.raises(AssertionError, match="opened|renamed"):
        look_at_create()


def test_real_files_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_RealFile, "sync", lambda self: None)
    with pytest.raises((AssertionError, StoreError)):
        explore_files(1, 8)


def write_as_before(self: StateFile, content: bytes, *, is_durable: bool) -> None:
    """The copy's name is not durable before the file, and may be there without any content."""
    temporary = Path(f"{self}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        if is_durable:
            file.flush()
            os.fdatasync(file.fileno())
    if self._path.exists() and (self.is_durable or not self._backup.exists()):
        spare = Path(f"{self}.tmp.bak")
        spare.unlink(missing_ok=True)
        os.link(self._path, spare)
        spare.replace(self._backup)
    self.is_durable = False
    temporary.replace(self._path)
    if is_durable:
        self._sync_directory()
        self.is_durable = True


def test_a_state_file_without_a_durable_copy_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A power cut may leave zeros, and a broker that has nothing else to read does not start."""
    monkeypatch.setattr(StateFile, "write", write_as_before)
    with pytest.raises((AssertionError, StateFileError)):
        explore_state_file(1, 40)


class _OsWithoutSync:
    def __getattr__(self, name: str) -> object:
        return (lambda number: None) if name == "fdatasync" else getattr(os, name)


def test_a_state_file_whose_content_is_not_synced_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_files, "os", _OsWithoutSync())
    with pytest.raises((AssertionError, StateFileError)):
        explore_state_file(1, 40)


def test_a_state_file_whose_name_is_not_synced_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StateFile, "_sync_directory", lambda self: None)
    with pytest.raises((AssertionError, StateFileError)):
        explore_state_file(1, 40)


def test_what_is_outside_of_the_directory_is_left_alone(tmp_path: Path) -> None:
    with recorded_files(RecordingDisk()) as system:
        (tmp_path / "a").write_bytes(b"other")
        os.replace(tmp_path / "a", tmp_path / "b")
        with open(tmp_path / "b", "rb") as file:
            os.fsync(file.fileno())
        assert not system.disk.names_now
