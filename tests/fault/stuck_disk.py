"""Disks that stop to answer: a device below a file system, and syncs of one process."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from tests.fault.small_disk import NoMountError

# Preloaded into a program: each sync waits while a file names the process.
_SYNCS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_while_stuck(void) {
    const char *path = getenv("LEDGERMQ_STUCK");
    int pid = 0;
    do {
        FILE *file = path ? fopen(path, "r") : NULL;
        pid = 0;
        if (file) {
            if (fscanf(file, "%d", &pid) != 1) pid = 0;
            fclose(file);
        }
    } while (pid == getpid() && usleep(50000) == 0);
}

int fdatasync(int fd) {
    wait_while_stuck();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    wait_while_stuck();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""


def _run(*words: object) -> None:
    """Runs a command to its end.

    Raises:
        NoMountError: it failed, or there is no such command.
    """
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
    except OSError as error:
        raise NoMountError(str(error)) from error
    if done.returncode:
        raise NoMountError(f"{words[0]}: {done.stderr.strip()}")


class StuckDisk:
    """A file system whose device does not answer while it is told so.

    Its device is a file on a second file system; while that one is frozen, nothing that is written
    to the device ends. What only changes the page cache goes on, as on a real disk.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Mounts it.

        Args:
            path: where; the directory must not be there.
            size_bytes: how large it is.

        Raises:
            NoMountError: that is not allowed, or there is no such command.
        """
        self.path = path
        self._below = path.with_name(path.name + ".below")
        self._mounted: list[Path] = []
        # The lower one keeps a journal and tables of its own.
        self._mount(self._below, self._below.with_suffix(".image"), size_bytes + (128 << 20))
        self._mount(path, self._below / "image", size_bytes)

    def _mount(self, path: Path, image: Path, size_bytes: int) -> None:
        path.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", image)
        _run("mount", "-o", "loop", image, path)
        self._mounted.append(path)

    def stick(self) -> None:
        """The device does not answer from here on."""
        _run("fsfreeze", "-f", self._below)

    def release(self) -> None:
        """It answers again."""
        _run("fsfreeze", "-u", self._below)

    def unmount(self) -> None:
        """Ends it; what was on it is gone."""
        with contextlib.suppress(NoMountError):
            self.release()
        for path in reversed(self._mounted):
            _run("umount", "-l", path)


class StuckSyncs:
    """Syncs of one process that wait, while its writes go on."""

    def __init__(self, folder: Path) -> None:
        """Builds what is preloaded.

        Raises:
            NoMountError: there is no C compiler.
        """
        self._file = folder / "stuck"
        source, library = folder / "stuck.c", folder / "stuck.so"
        source.write_text(_SYNCS)
        _run("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl")
        # Of the programs that may be stuck.
        self.environment = {"LD_PRELOAD": str(library), "LEDGERMQ_STUCK": str(self._file)}

    def stick(self, pid: int) -> None:
        """No sync of this process ends from here on."""
        self._file.write_text(str(pid))

    def release(self) -> None:
        """All go on."""
        self._file.unlink()
