"""Files that are replaced whole."""

import os
import stat
from pathlib import Path

import pytest

from ledgermq.protocol.replaced_file import replace_file


def test_has_the_content_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_file(path, [b"new ", b"rules"])
    assert path.read_bytes() == b"new rules"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["rules.yml"]


def test_says_when_it_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    replace_file(path, [b"x"], changed_ns=1_700_000_000_000_000_000)
    assert path.stat().st_mtime_ns == 1_700_000_000_000_000_000


def test_does_not_write_by_way_of_a_link(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "rules.yml", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    (tmp_path / "rules.yml.tmp").symlink_to(elsewhere)
    replace_file(path, [b"new"])
    assert elsewhere.read_bytes() == b"untouched"
    assert path.read_bytes() == b"new" and not path.is_symlink()


def test_is_on_the_disk_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rules.yml"
    steps: list[str] = []
    sync, rename = os.fsync, Path.replace

    def note_sync(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        steps.append("folder" if is_folder else f"{os.fstat(handle).st_size} bytes")
        sync(handle)

    def note_rename(self: Path, target: Path) -> Path:
        steps.append("name")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_rename)
    replace_file(path, [b"123", b"45"])
    assert steps == ["5 bytes", "name", "folder"]


def test_a_content_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_bytes(b"old")

    def broken() -> "list[bytes]":
        raise ValueError("no content")

    with pytest.raises(ValueError, match="no content"):
        replace_file(path, (part for _ in range(1) for part in broken()))
    assert path.read_bytes() == b"old"
    replace_file(path, [b"new"])
    assert path.read_bytes() == b"new"
