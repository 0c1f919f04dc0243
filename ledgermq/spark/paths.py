"""Paths of files that tasks open: absolute, as the driver means them, and the same on every worker.

A task runs in a process with a working directory of its own, on a cluster in one on another
machine. So a path is made absolute where a user gave it, before anything travels; and a job looks
whether its workers see what it sees before it begins.
"""

import os
import re
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ledgermq.dledger.store.outside_files import FileRefusedError, regular_size
from ledgermq.spark.errors import ClusterError, CorruptDataError, OptionError, PathNotSeenError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE: Final = "file:"
# Tasks for each core, so that every worker gets one.
_LOOKS_FOR_EACH_CORE: Final = 2


def local_path(option: str, text: str) -> Path:
    """Returns the absolute path that a user means.

    Args:
        option: by which it was given, for the error.
        text: absolute, or from the working directory of this process; ``file://`` may stand before
            it, and ``~`` is a home directory.

    Raises:
        OptionError: it is on another kind of file system.
    """
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() != "file":
            allowed = "a path in the file system, the same on every worker"
            raise OptionError(option, text, f"{allowed}{who_reads(text)}")
        text = text[len(_FILE) :].removeprefix("//")
    return Path(os.path.abspath(os.path.expanduser(text)))


def who_reads(text: str) -> str:
    """Returns who takes a path that is refused, "" where nobody may."""
    if not text.lower().startswith("hdfs:"):
        return ""
    return " (only Spark's own readers and writers have a client for hdfs:)"


def spark_path(path: Path) -> str:
    """Returns a path for Spark's own readers and writers, which may take another file system than
    this machine's for what has no scheme.
    """
    return f"file://{path}"


def literal(text: str) -> str:
    """Returns a path of which Spark's readers take nothing for a pattern."""
    return "".join(f"\\{sign}" if sign in "{}[]*?\\" else sign for sign in text)


def file_size(path: str) -> int:
    """Returns the size of a file that the driver has planned to read.

    Raises:
        PathNotSeenError: it is not there, where this task runs.
        CorruptDataError: it is no regular file, or is too large for one of a log.
    """
    try:
        return regular_size(path)
    except FileNotFoundError:
        raise PathNotSeenError(path, this_worker()) from None
    except FileRefusedError as error:
        raise CorruptDataError(path, str(error)) from error


def check_seen(context: Any, option: str, paths: Sequence[Path]) -> None:
    """Checks that workers see what the driver sees.

    Whoever has a core at the moment is asked; a worker that comes later fails at its first file,
    for the same reason.

    Args:
        context: a SparkContext.
        option: by which the paths were given.
        paths: absolute; of files or directories that are there.

    Raises:
        OptionError: a worker does not see one.
    """
    if re.match(r"local(\[|$)", context.master):
        # The workers are processes beside this one.
        return
    texts = [str(path) for path in paths]

    def look(_: int) -> list[tuple[str, str]]:
        return [(path, this_worker()) for path in texts if not os.path.exists(path)]

    count = _LOOKS_FOR_EACH_CORE * max(1, context.defaultParallelism)
    for unseen in context.parallelize(range(count), count).map(look).collect():
        for path, worker in unseen:
            allowed = f"a path that every worker sees; it is not there for {worker}"
            raise OptionError(option, path, allowed)


def check_shared(context: Any, option: str, directory: Path) -> None:
    """Checks that workers write into the very directory that the driver reads; makes it.

    Raises:
        OptionError: a worker has another one, or none.
        OSError: it cannot be made or written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    mark = directory / f"_seen-by-{uuid.uuid4().hex}"
    mark.touch()
    try:
        check_seen(context, option, [mark])
    finally:
        mark.unlink()


@contextmanager
def naming_worker() -> Iterator[None]:
    """Adds to what a cluster did not do for whom: others may have reached it.

    Raises:
        ClusterError: as it was raised in the `with` block, with the host.
    """
    try:
        yield
    except ClusterError as error:
        reason = f"{error.reason}; asked by the worker on {socket.gethostname()}"
        raise ClusterError(error.what, reason) from error


def this_worker() -> str:
    """Returns who runs this task, for errors."""
    return f"the worker on {socket.gethostname()}, in {os.getcwd()}"
