"""The file of a group's secret, and the keys that are made from it."""

from pathlib import Path

import pytest

from ledgermq.protocol.group_secret import GroupSecret, GroupSecretError, read_group_secret

_SECRET = b"0123456789abcdef0123456789abcdef"


def _written(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "group.secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_white_space_around_it_does_not_count(tmp_path: Path) -> None:
    read = read_group_secret(_written(tmp_path, b" " + _SECRET + b"\r\n"))
    assert read.key("members") == GroupSecret(_SECRET).key("members")


def test_each_use_and_each_secret_has_a_key_of_its_own() -> None:
    one, other = GroupSecret(_SECRET), GroupSecret(_SECRET + b"x")
    keys = {one.key("members"), one.key("rules"), other.key("members"), other.key("rules")}
    assert len(keys) == 4
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = _written(tmp_path, _SECRET, mode)
    with pytest.raises(GroupSecretError, match=f"{mode:04o}.*chmod 0600"):
        read_group_secret(path)


@pytest.mark.parametrize("content", [b"", b"short", _SECRET[:-1] + b"\n", b"x" * 5000])
def test_a_secret_too_short_or_too_long_is_refused(tmp_path: Path, content: bytes) -> None:
    path = _written(tmp_path, content)
    with pytest.raises(GroupSecretError, match="bytes: it has 32 to 4096"):
        read_group_secret(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(GroupSecretError, match="nowhere: No such file"):
        read_group_secret(tmp_path / "nowhere")
    with pytest.raises(GroupSecretError, match="Is a directory"):
        read_group_secret(tmp_path)


def test_nothing_of_it_is_printed() -> None:
    assert "0123" not in repr(GroupSecret(_SECRET))
