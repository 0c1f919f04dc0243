"""Flushes: queues, indexes and state files get to the disk, beside the keeper's other work.

A flush takes everything as it is at one moment: state files first, then the files of the message
store, then the mark that says up to which entry all of it is durable; so a restart replays from the
log exactly the changes that the files may lack. Between flushes state files are replaced without
being durable, for people and other programs to read. One of the two is under way at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.commitlog import FlushJob, MessageStore
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.filesystem import disk_error
from ledgermq.dledger.store.keeper import Keeper

_log = Logger()


class Writable(Protocol):
    """A file whose content is replaced as a whole."""

    def write(self, content: bytes, *, is_durable: bool) -> None:
        """Replaces the content; blocks. Raises OSError."""


# Files, and what is to be written to each.
Contents = Sequence[tuple[Writable, bytes]]


class Tables(Protocol):
    """The broker's state, as far as its files are older."""

    @property
    def is_waiting(self) -> bool:
        """Whether a table could not be written a moment ago, and is not to be encoded yet."""

    def take_unsaved(self) -> Any:
        """Returns Contents that must be made durable, None when one of them cannot be."""

    def take_back(self, files: Any) -> None:
        """Notes that these did not get to the disk."""


class Flushes:
    """What of one broker is on its way to the disk."""

    def __init__(
        self,
        keeper: Keeper,
        messages: MessageStore,
        tables: Tables,
        now_ms: Callable[[], int],
    ) -> None:
        """Nothing is under way.

        Args:
            keeper: does the steps.
            messages: tells when a flush is due.
            tables: of the state; nothing is taken from them while something is under way.
            now_ms: the clock by which flushes are due.
        """
        self._keeper = keeper
        self._messages = messages
        self._tables = tables
        self._now_ms = now_ms
        # The flush under way; None while there is none.
        self._job: FlushJob | None = None
        # State files are being replaced between two flushes.
        self._is_saving = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and no flush has failed."""
        return self._job is None and not self._is_saving

    def save(self, take: Callable[[], Contents]) -> None:
        """Replaces state files, not durably; leaves it to the flush where one is under way.

        Args:
            take: returns what is to be written.
        """
        files = take() if self.is_idle else ()
        if files:
            self._is_saving = True
            steps = _writes(files, is_durable=False)
            self._keeper.run_steps(steps).addBoth(self._saved, files)

    def _saved(self, result: object, files: Contents) -> None:
        self._is_saving = False
        if isinstance(result, Failure):
            self._tables.take_back(files)
            _log.error("state files: {reason}", reason=result.getErrorMessage())

    def begin_if_due(self, failed: Callable[[BaseException], None]) -> None:
        """Begins a flush when the message store wants one.

        Args:
            failed: told when the disk refuses, which is final for this replica.
        """
        now_ms = self._now_ms()
        if not self.is_idle or not self._messages.is_flush_due(now_ms):
            return
        files = None if self._tables.is_waiting else self._tables.take_unsaved()
        if files is None:
            return
        job = self._job = self._messages.begin_flush(now_ms)
        steps = self._steps(files, job)
        flushed: Deferred[Any] = self._keeper.run(self._messages.begin_log_sync)
        flushed.addCallback(lambda _: self._keeper.run_steps(steps))
        flushed.addCallback(lambda _: self._flushed())
        flushed.addErrback(self._not_flushed, files, failed)

    def _steps(self, files: Contents, job: FlushJob) -> Iterator[Callable[[], None]]:
        """State files first, then the mark that makes them needed."""
        return chain(_writes(files, is_durable=True), job.steps())

    def _flushed(self) -> None:
        job, self._job = self._job, None
        assert job is not None
        self._messages.end_flush(job)

    def _not_flushed(
        self, failure: Failure, files: Contents, failed: Callable[[BaseException], None]
    ) -> None:
        """Without room the flush is done again when it is due; any other error is final."""
        if failure.check(DiskFullError):
            self._job = None
            self._tables.take_back(files)
            self._messages.take_back_flush()
            _log.error("no flush of queues and state: {reason}", reason=failure.getErrorMessage())
            return
        assert failure.value is not None
        failed(failure.value)


def _writes(files: Contents, *, is_durable: bool) -> Iterator[Callable[[], None]]:
    """Yields what writes each file; runs in the keeper's thread."""

    def write(file: Writable, content: bytes) -> None:
        try:
            file.write(content, is_durable=is_durable)
        except OSError as error:
            raise disk_error(error, str(file), len(content)) from error

    return (partial(write, file, content) for file, content in files)
