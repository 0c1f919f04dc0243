"""A small disk for one store: a file system in memory, which runs full when it is told to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.waiting import wait_until


class NoMountError(Exception):
    """Nobody may mount here; the text says why."""


class SmallDisk:
    """A file system in memory at one path."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Mounts it.

        Args:
            path: where; the directory must not be there.
            size_bytes: how large it is at first.

        Raises:
            NoMountError: that is not allowed, or there is no such command.
        """
        self.path = path
        self._size_bytes = size_bytes
        path.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        except OSError as error:
            raise NoMountError(str(error)) from error
        if done.returncode:
            raise NoMountError(done.stderr.strip())

    def grow(self) -> None:
        """Makes it as large as it was at first."""
        assert self.resize(self._size_bytes)

    def resize(self, size_bytes: int) -> bool:
        """Returns whether that worked: a size below what is used is refused."""
        words = ["mount", "-o", f"remount,size={size_bytes}", str(self.path)]
        return subprocess.run(words, capture_output=True, timeout=60).returncode == 0

    def fill(self) -> None:
        """Leaves room for less than one more segment."""

        def is_filled() -> bool:
            disk = os.statvfs(self.path)
            return self.resize((disk.f_blocks - disk.f_bfree) * disk.f_frsize + (256 << 10))

        wait_until(is_filled, what=f"a full disk at {self.path}")

    def put_ballast(self, percent: int) -> Path:
        """Makes a file after which so much of the disk is used, and returns it."""
        disk = os.statvfs(self.path)
        used = disk.f_blocks - disk.f_bfree
        ballast = self.path / "ballast"
        with open(ballast, "wb") as file:
            size = (disk.f_blocks * percent // 100 - used) * disk.f_frsize
            os.posix_fallocate(file.fileno(), 0, size)
        return ballast

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True, timeout=60)
