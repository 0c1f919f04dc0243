"""Flushes: queues, indexes and state files get to the disk, beside the keeper's other work.

A flush takes the message store as it is at one moment, and the broker's state as it is then or
later: a large table is encoded slice by slice, with other work in between. When all is encoded it
goes to the disk: state files first, then the files of the message store, then the mark that says up
to which entry all of it is durable; so a restart replays from the log every change that the files
may lack. Between flushes state files are replaced without being durable, for people and other
programs to read. One of the two is under way at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.storage.state_files import ContentFile
from ledgermq.broker.storage.state_tables import Encoding, StateContents, StateTables
from ledgermq.commitlog import FlushJob, MessageStore
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.filesystem import disk_error
from ledgermq.dledger.store.keeper import Keeper

_log = Logger()


# Between two slices of a large table.
_SLICE_S: Final = 0.02


class Delayed(Protocol):
    """A call that has not come yet."""

    def cancel(self) -> None: ...


class Flushes:
    """What of one broker is on its way to the disk."""

    def __init__(
        self,
        keeper: Keeper,
        messages: MessageStore,
        tables: StateTables,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Delayed],
    ) -> None:
        """Nothing is under way.

        Args:
            keeper: does the steps.
            messages: tells when a flush is due.
            tables: of the state; nothing is taken from them while something is under way.
            now_ms: the clock by which flushes are due.
            call_later: calls a function after so many seconds.
        """
        self._keeper = keeper
        self._messages = messages
        self._tables = tables
        self._now_ms = now_ms
        self._call_later = call_later
        # The flush under way; None while there is none.
        self._job: FlushJob | None = None
        # State files are being replaced between two flushes.
        self._is_saving = False
        # Tables of which slices are left, and the call for the next one.
        self._encoding: tuple[Encoding, Delayed] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and no flush has failed."""
        return self._job is None and not self._is_saving

    @property
    def is_encoding(self) -> bool:
        """Whether slices of tables are left."""
        return self._encoding is not None

    def save(self, names: Iterable[str]) -> None:
        """Replaces files of tables that changed, not durably; leaves it to the flush where one is
        under way.
        """
        encoding = self._tables.begin_save(names) if self.is_idle else None
        if encoding is not None:
            self._is_saving = True
            self._encode(encoding, self._save)

    def _save(self, encoding: Encoding) -> None:
        steps = _writes(encoding.contents, is_durable=False)
        self._keeper.run_steps(steps).addBoth(self._saved, encoding)

    def _saved(self, result: object, encoding: Encoding) -> None:
        self._is_saving = False
        if isinstance(result, Failure):
            encoding.take_back()
            _log.error("state files: {reason}", reason=result.getErrorMessage())
        else:
            self._tables.note_durable(encoding)

    def _encode(self, encoding: Encoding, encoded: Callable[[Encoding], None]) -> None:
        """Takes a slice, and the next one a little later; has `encoded` told behind the last."""
        self._encoding = None
        try:
            encoding.step()
        except Exception:
            # Else nothing would ever be saved again.
            _log.failure("state files: not encoded, it is tried again")
            self._give_up(encoding)
            return
        if encoding.is_done:
            encoded(encoding)
        else:
            again = self._call_later(_SLICE_S, partial(self._encode, encoding, encoded))
            self._encoding = (encoding, again)

    def drop(self) -> None:
        """Gives up what is not encoded yet: the broker stops, and writes all that is unsaved."""
        if self._encoding is None:
            return
        (encoding, again), self._encoding = self._encoding, None
        again.cancel()
        self._give_up(encoding)

    def _give_up(self, encoding: Encoding) -> None:
        """Nothing of this is under way any more."""
        encoding.take_back()
        self._is_saving = False
        if self._job is not None:
            self._job = None
            self._messages.take_back_flush()

    def begin_if_due(self, failed: Callable[[BaseException], None]) -> None:
        """Begins a flush when the message store wants one.

        Args:
            failed: told when the disk refuses, which is final for this replica.
        """
        now_ms = self._now_ms()
        if not self.is_idle or self._tables.is_waiting or not self._messages.is_flush_due(now_ms):
            return
        self._job = self._messages.begin_flush(now_ms)
        self._encode(self._tables.begin_flush(), partial(self._flush, failed))

    def _flush(self, failed: Callable[[BaseException], None], encoding: Encoding) -> None:
        assert self._job is not None
        mark, indexes = self._job.mark, self._tables.take_indexes(encoding)
        if mark.state is not None:
            mark = replace(mark, state=replace(mark.state, files=indexes))
        job = self._job = replace(self._job, mark=mark, is_marked=not encoding.is_void)
        steps = self._steps(encoding, job)
        flushed: Deferred[Any] = self._keeper.run(self._messages.begin_log_sync)
        flushed.addCallback(lambda _: self._keeper.run_steps(steps))
        flushed.addCallback(lambda _: self._flushed())
        flushed.addErrback(self._not_flushed, encoding, failed)

    def _steps(self, encoding: Encoding, job: FlushJob) -> Iterator[Callable[[], None]]:
        """State files first, then the mark that makes them needed."""
        return chain(_writes(encoding.contents, is_durable=True), job.steps())

    def _flushed(self) -> None:
        job, self._job = self._job, None
        assert job is not None
        self._messages.end_flush(job)

    def _not_flushed(
        self, failure: Failure, encoding: Encoding, failed: Callable[[BaseException], None]
    ) -> None:
        """Without room the flush is done again when it is due; any other error is final."""
        if failure.check(DiskFullError):
            self._job = None
            encoding.take_back()
            self._messages.take_back_flush()
            _log.error("no flush of queues and state: {reason}", reason=failure.getErrorMessage())
            return
        assert failure.value is not None
        failed(failure.value)


def _writes(contents: StateContents, *, is_durable: bool) -> Iterator[Callable[[], None]]:
    """Yields what writes each file; runs in the keeper's thread."""

    def write(file: ContentFile, content: bytes) -> None:
        try:
            file.write(content, is_durable=is_durable)
        except OSError as error:
            raise disk_error(error, str(file), len(content)) from error

    return (partial(write, file, content) for file, content in contents)
