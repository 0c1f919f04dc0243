"""Who else may read a store, or lead its broker elsewhere: looked at before anything is opened."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.commitlog import StoreLock, StoreUnsafeError, find_open_to_others
from ledgermq.dledger.store import RealFileSystem


def modes(root: Path) -> dict[str, int]:
    """Mode of each path below the root, and of the root itself."""
    paths = [root, *root.rglob("*")]
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for path in paths}


@pytest.fixture
def no_mask() -> Iterator[None]:
    """A shell that lets everybody read everything."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_mask")
def test_what_is_made_is_for_its_user_alone_whatever_the_shell_says(tmp_path: Path) -> None:
    root = tmp_path / "a" / "store"
    lock = StoreLock(str(root))
    lock.take()
    files = RealFileSystem()
    files.make_directory(str(root / "data" / "deep"))
    files.reserve(str(root / "data" / "deep" / "0"), 4096).close()
    files.reserve(str(root / "data" / "1"), 4096)
    files.replace(str(root / "mark"), b"x")
    wide = {path: oct(mode) for path, mode in modes(tmp_path / "a").items() if mode & 0o077}
    assert not wide and len(modes(root)) == 8
    lock.release(is_clean=True)


def test_a_link_under_a_name_of_ours_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "of-somebody"
    target.write_bytes(b"precious")
    root = tmp_path / "store"
    root.mkdir(mode=0o700)
    files = RealFileSystem()
    for name in ("mark.tmp", "lock", "data", "abort"):
        (root / name).symlink_to(target)
    (root / "segments").mkdir()
    (root / "segments-0.tmp").symlink_to(target)
    with pytest.raises(OSError, match="mark"):
        files.replace(str(root / "mark"), b"x")
    # What stood in the way is gone, and the next try goes well.
    files.replace(str(root / "mark"), b"x")
    with pytest.raises(OSError, match="lock"):
        StoreLock(str(root)).take()
    with pytest.raises(OSError, match="data"):
        files.open(str(root / "data"))
    with pytest.raises(OSError, match="0"):
        files.reserve(str(root / "segments" / "0"), 4096)
    (root / "lock").unlink()
    with pytest.raises(OSError, match="abort"):
        StoreLock(str(root)).take()
    assert target.read_bytes() == b"precious"


def test_what_is_no_file_is_not_opened_as_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        RealFileSystem().open(str(tmp_path / "pipe"))


def test_a_store_that_is_open_to_others_is_told_once_with_the_remedy(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert find_open_to_others(str(root)) is None
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text("{}")
    for path in (root, root / "config", root / "config" / "topics.json"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = modes(root)
    text = find_open_to_others(str(root)) or ""
    assert "3 of its files" in text and f"chmod -R go-rwx {root}" in text
    assert modes(root) == before, "another program may rely on them"
    root.chmod(0o700)
    assert find_open_to_others(str(root)) is None


def test_links_of_this_user_are_followed_and_those_of_others_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "a").mkdir(parents=True)
    root.chmod(0o700)
    (root / "a" / "commitlog").symlink_to(tmp_path)
    assert find_open_to_others(str(root)) is None
    nobody = os.geteuid() + 1
    with pytest.raises(StoreUnsafeError, match=f"commitlog is a link .* id {os.geteuid()} "):
        find_open_to_others(str(root), trusted={nobody})
