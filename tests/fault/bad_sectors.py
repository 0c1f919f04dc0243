"""A disk of which some files cannot be read: a loop device over a file that ends early (EIO).

The files that shall be damaged are moved to the last blocks of the file system, and the file that
backs the device is cut before them. The device keeps its size, so that a read behind the cut fails
as an unreadable sector does; what is written there can be read again.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.waiting import wait_until

_SECTOR_BYTES: Final = 512
_FREE_BYTES: Final = 2 << 20
_TOOLS: Final = ("losetup", "mkfs.ext4", "mount", "umount", "filefrag")
_EXTENT: Final = re.compile(r"^\s*\d+:\s+\d+\.\.\s*\d+:\s+(\d+)\.\.", re.MULTILINE)


def require_loop_devices() -> None:
    """Skips the test on a machine that gives none."""
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking:
        pytest.skip(f"no loop devices: {lacking[0]} is not installed")
    if os.geteuid() != 0:
        pytest.skip("no loop devices: the test does not run as root")
    if subprocess.run(["losetup", "-f"], capture_output=True).returncode:
        pytest.skip("no loop devices: the kernel gives none")


def _extents_of(path: Path) -> list[int]:
    """Returns the first sector of each extent of a file."""
    return list(map(int, _EXTENT.findall(_run("filefrag", "-v", f"-b{_SECTOR_BYTES}", path))))


def _run(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{words[0]}: {done.stdout}{done.stderr}")
    return done.stdout


class BadSectors:
    """A file system of its own, mounted on a directory that exists."""

    def __init__(self, image: Path, mount: Path, size_bytes: int = 96 << 20) -> None:
        self._image, self._mount = image, mount
        self._device = ""
        with image.open("wb") as file:
            file.truncate(size_bytes)
        # Without a journal the file system writes nothing to its end by itself.
        _run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", image)
        self._attach()
        _run("mount", self._device, mount)

    def _attach(self) -> None:
        self._device = _run("losetup", "-f", "--show", self._image).strip()

    def damage(self, path: Path) -> None:
        """Makes a file unreadable; no file of this disk may be open."""
        disk = os.statvfs(self._mount)
        filler = self._mount / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - _FREE_BYTES)
        copies = self._copies_of(path)
        _run("sync", "-f", self._mount)
        # Copies fill what is left, so one of them has the last blocks.
        os.replace(max(copies, key=lambda copy: min(_extents_of(copy))), path)
        for left in (filler, *copies):
            left.unlink(missing_ok=True)
        _run("sync", "-f", self._mount)
        begin = min(_extents_of(path))
        others = [file for file in self._mount.rglob("*") if file.is_file() and file != path]
        behind = [other for other in others if max(_extents_of(other), default=0) > begin]
        assert not behind, f"{behind} are placed behind {path}"
        self._detach()
        size_bytes = self._image.stat().st_size
        os.truncate(self._image, begin * _SECTOR_BYTES)
        self._attach()
        os.truncate(self._image, size_bytes)
        _run("losetup", "-c", self._device)
        os.truncate(self._image, begin * _SECTOR_BYTES)
        _run("mount", self._device, self._mount)
        with pytest.raises(OSError, match="Input/output error"):
            path.read_bytes()

    def _copies_of(self, path: Path) -> list[Path]:
        """Copies a file until the disk is full."""
        copies: list[Path] = []
        while True:
            copy = path.with_name(f"copy-{len(copies)}")
            try:
                shutil.copy(path, copy)
            except OSError as error:
                assert error.errno == errno.ENOSPC and copies, error
                copy.unlink(missing_ok=True)
                return copies
            copies.append(copy)

    def _detach(self) -> None:
        # A process that has just ended may still hold it.
        umount = ["umount", str(self._mount)]
        wait_until(
            lambda: subprocess.run(umount, capture_output=True).returncode == 0, what="an unmount"
        )
        _run("losetup", "-d", self._device)
        self._device = ""

    def close(self) -> None:
        """Unmounts the file system and gives the device back."""
        if self._device:
            subprocess.run(["umount", "-l", str(self._mount)], capture_output=True)
            subprocess.run(["losetup", "-d", self._device], capture_output=True)
