"""The calls of the operating system that a program makes below one directory, recorded.

The program runs on real files, through its own code down to `os.open` and `os.rename`; beside them
a RecordingDisk knows in which states a power cut may leave them. So an order of steps that is wrong
(a rename before the sync, a directory that is not synced) shows in a state, as on a machine.

Contents are read from the files whenever the machine may stop, so that writes through a mapping are
seen, too. Nothing is really synced. Directories count as there once they are made.
"""

import builtins
import io
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self
from unittest import mock

from tests.fault.recording_disk import RecordedFile, RecordingDisk, State

_MAKING_MODES = frozenset("wxa")


class _OsFile(RecordedFile):
    """A real file; its descriptor here keeps its number from being another's."""

    def __init__(self, disk: RecordingDisk, number: int) -> None:
        super().__init__(disk, b"", b"")
        self.number = number

    def note(self) -> None:
        """Takes down the content of the file if it is a new one."""
        self.content = bytearray(os.pread(self.number, os.fstat(self.number).st_size, 0))
        super().note()


class RecordedOs:
    """Stands before the calls of `os` inside a `with` block."""

    def __init__(self, root: str, disk: RecordingDisk) -> None:
        """Records what happens below a directory that is empty now.

        Args:
            root: the directory; a path without links.
            disk: takes down what happens.
        """
        self.root = root
        self.disk = disk
        self._files: dict[int, _OsFile] = {}
        self._true_open = os.open
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        recorded: dict[Callable[..., Any], tuple[str, ...]] = {
            self._open: ("open",),
            self._rename: ("rename", "replace"),
            self._unlink: ("unlink", "remove"),
            self._link: ("link",),
            self._sync: ("fsync", "fdatasync"),
            self._change: ("posix_fallocate", "ftruncate", "write"),
            self._pwrite: ("pwrite",),
        }
        for function, names in recorded.items():
            for name in names:
                self._patch(os, name, function)
        for module in (builtins, io):
            self._patch(module, "open", self._open_file)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        for file in self._files.values():
            os.close(file.number)

    def content_below(self, state: State) -> State:
        """Returns a state with the paths as they are below the root."""
        return {path.removeprefix(self.root): content for path, content in state.items()}

    def _patch(self, module: Any, name: str, recorded: Callable[..., Any]) -> None:
        true = getattr(module, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return recorded(true, *arguments, **keywords)

        self._patches.enter_context(mock.patch.object(module, name, call))

    # What the calls do. `true` is the real one.

    def _open(self, true: Callable[..., int], path: Any, flags: int, *rest: Any, **kw: Any) -> int:
        if not (self._is_ours(path) and flags & (os.O_CREAT | os.O_TRUNC)):
            return true(path, flags, *rest, **kw)
        return self._made(path, lambda: true(path, flags, *rest, **kw))

    def _open_file(
        self, true: Callable[..., Any], path: Any, mode: str = "r", *a: Any, **kw: Any
    ) -> Any:
        if not (self._is_ours(path) and _MAKING_MODES & set(mode)):
            return true(path, mode, *a, **kw)
        return self._made(path, lambda: true(path, mode, *a, **kw))

    def _made(self, path: Any, make: Callable[[], Any]) -> Any:
        path = os.path.abspath(path)
        self.disk.point("open")
        was_there = os.path.lexists(path)
        opened = make()
        if not was_there:
            self.disk._change(path, self._add(path))
        try:
            self.disk.point("opened")
        except BaseException:
            os.close(opened) if isinstance(opened, int) else opened.close()
            raise
        return opened

    def _add(self, path: str) -> _OsFile:
        number = self._true_open(path, os.O_RDONLY | os.O_CLOEXEC)
        file = self._files[os.fstat(number).st_ino] = _OsFile(self.disk, number)
        return file

    def _rename(self, true: Callable[..., None], source: Any, target: Any, **kw: Any) -> None:
        if not self._is_ours(target):
            true(source, target, **kw)
            return
        self.disk.point("rename")
        file = self.disk.names_now[os.path.abspath(source)]
        true(source, target, **kw)
        self.disk._change(os.path.abspath(target), file, os.path.abspath(source))
        self.disk.point("renamed")

    def _link(self, true: Callable[..., None], source: Any, target: Any, **kw: Any) -> None:
        if not self._is_ours(target):
            true(source, target, **kw)
            return
        self.disk.point("link")
        true(source, target, **kw)
        self.disk._change(os.path.abspath(target), self.disk.names_now[os.path.abspath(source)])
        self.disk.point("linked")

    def _unlink(self, true: Callable[..., None], path: Any, **kw: Any) -> None:
        if not self._is_ours(path):
            true(path, **kw)
            return
        self.disk.point("unlink")
        true(path, **kw)
        self.disk._change(os.path.abspath(path), None)
        self.disk.point("unlinked")

    def _sync(self, true: Callable[[int], None], number: int) -> None:
        status = os.fstat(number)
        path = os.readlink(f"/proc/self/fd/{number}")
        if stat.S_ISDIR(status.st_mode) and (path == self.root or self._is_ours(path)):
            self.disk.sync_directory(path)
        elif status.st_ino in self._files:
            self._files[status.st_ino].sync()
        else:
            true(number)

    def _change(self, true: Callable[..., Any], number: int, *rest: Any) -> Any:
        """A call that changes the content of a file."""
        if os.fstat(number).st_ino not in self._files:
            return true(number, *rest)
        self.disk.point("change")
        done = true(number, *rest)
        self.disk.point("changed")
        return done

    def _pwrite(self, true: Callable[..., int], number: int, data: Any, offset: int) -> int:
        """Does a part of some writes, as a system may; others run then."""
        part = self.disk.first_part(len(data))
        if not part or os.fstat(number).st_ino not in self._files:
            return true(number, data, offset)
        done = true(number, memoryview(data)[:part], offset)
        self.disk.point("part of a write")
        self.disk.let_go()
        return done

    def _is_ours(self, path: Any) -> bool:
        if isinstance(path, int):
            return False
        return os.path.abspath(os.fspath(path)).startswith(self.root + "/")
