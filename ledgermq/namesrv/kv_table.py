"""KvTable: the name server's key-value configuration, kept in one file (kv_file.py).

    put, delete ──> the next state ──> written by another thread ──> seen by all, and answered

A change is durable before anybody sees it or is answered. One write is under way at a time; what is
asked for meanwhile is written together by the next one, which waits a while in proportion to what
the last one took: each writes the whole file, and whoever puts without end shall not keep the
machine busy with it. When a write fails, all that waits fails with it, and the next state is again
what all see.

The limits are checked when an item is put, by sums that are kept, so that a start always reads what
was written, and every list fits into one answer.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.namesrv.bounds import check_name
from ledgermq.namesrv.errors import BusyError, ConfigItemNotFoundError, LimitError
from ledgermq.namesrv.kv_file import (
    KvFile,
    Namespaces,
    file_bytes,
    item_bytes,
    namespace_bytes,
)
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.transport.turn import Clock, DelayedCall

# Namespace of the order of topics: topic -> "brokerName:queues;...".
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
# Of the file, and by that of every list: half of what a frame takes.
TABLE_BYTES_MAX: Final = 8 * 1024 * 1024
ITEMS_MAX: Final = 100_000
VALUE_BYTES_MAX: Final = 32_768
# Changes that wait for the write under way.
CHANGES_MAX: Final = 10_000
# So many times what a write took passes before the next one begins, from the least to the most.
_PAUSE_RATIO: Final = 4.0
_PAUSE_S_MIN: Final = 0.001
_PAUSE_S_MAX: Final = 1.0

# Calls a function in another thread; fires with nothing, or fails as the function did.
RunInThread = Callable[[Callable[[], None]], Deferred[None]]

_log = Logger()


class _Change(NamedTuple):
    """One item, as it is to be."""

    namespace: str
    key: str
    # None: no such item.
    value: str | None
    done: Deferred[None]


class KvTable:
    """Namespaces of texts by key."""

    def __init__(
        self,
        path: Path,
        run_in_thread: RunInThread,
        clock: Clock,
        *,
        bytes_max: int = TABLE_BYTES_MAX,
    ) -> None:
        """Reads nothing yet.

        Args:
            path: of the file.
            run_in_thread: for what waits for the disk.
            clock: the reactor.
            bytes_max: of the file.
        """
        self._file = KvFile(path)
        self._run_in_thread = run_in_thread
        self._bytes_max = bytes_max
        # What is durable and seen.
        self._namespaces: Namespaces = {}
        # The state after all changes, written or not; its items, and its bytes in the file.
        self._next: Namespaces = {}
        self._next_count = 0
        self._next_bytes = file_bytes({})
        # Changes of the write under way, and those that wait for it.
        self._writing: list[_Change] = []
        self._waiting: list[_Change] = []
        self._clock = clock
        self._begun_s = 0.0
        # Ends the time in which no write begins; None outside of it.
        self._pause: DelayedCall | None = None
        self._is_stopping = False
        # Counts up with what is seen.
        self.version = 0

    def load(self) -> None:
        """Reads the file; a missing one is an empty table.

        Raises:
            OSError: the file cannot be read, is no regular one, or larger than it may be.
            ValueError: it is not such a table.
        """
        self._namespaces = self._file.read()
        for note in self._file.notes:
            _log.warn("the key-value file is read from its other copy: {note}", note=note)
        self._begin_anew()

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """Sets one item.

        Returns:
            Fires when it is durable; fails with OSError when it cannot be written.

        Raises:
            RemoteProtocolError: a text is none of those that may be kept.
            LimitError: the table would be too large.
            BusyError: too many changes wait.
        """
        check_name("namespace", namespace)
        check_name("key", key)
        _check_value(value)
        self._check_waiting()
        items = self._next.get(namespace)
        before = None if items is None else items.get(key)
        size = self._next_bytes + item_bytes(key, value)
        if items is None:
            size += namespace_bytes(namespace)
        if before is not None:
            size -= item_bytes(key, before)
        elif self._next_count >= ITEMS_MAX:
            raise LimitError("items of the key-value table", self._next_count + 1, ITEMS_MAX)
        if size > self._bytes_max:
            raise LimitError("bytes of the key-value file", size, self._bytes_max)
        self._next_count += before is None
        self._next_bytes = size
        _apply(self._next, namespace, key, value)
        return self._changed(namespace, key, value)

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """Removes one item; a namespace goes with its last one.

        Returns:
            Fires when it is durably gone, at once when it was not there; fails with OSError.

        Raises:
            BusyError: too many changes wait.
        """
        items = self._next.get(namespace, {})
        value = items.get(key)
        if value is None and not self._writing and not self._waiting:
            return succeed(None)
        self._check_waiting()
        if value is not None:
            self._next_count -= 1
            self._next_bytes -= item_bytes(key, value)
            if len(items) == 1:
                self._next_bytes -= namespace_bytes(namespace)
            _apply(self._next, namespace, key, None)
        return self._changed(namespace, key, None)

    def stop(self) -> Deferred[list[tuple[bool, None]]]:
        """Writes what waits without a pause; fires when nothing is under way."""
        self._is_stopping = True
        if self._pause is not None:
            self._pause.cancel()
            self._go_on()
        changes = [change.done for change in (*self._writing, *self._waiting)]
        watched: list[Deferred[None]] = []
        for done in changes:
            seen: Deferred[None] = Deferred()
            done.addBoth(_passed_to, seen)
            watched.append(seen)
        return DeferredList(watched)

    # What is seen.

    def get(self, namespace: str, key: str) -> str:
        """Returns one item.

        Raises:
            ConfigItemNotFoundError: there is none.
        """
        value = self.find(namespace, key)
        if value is None:
            raise ConfigItemNotFoundError(namespace, key)
        return value

    def find(self, namespace: str, key: str) -> str | None:
        """Returns one item, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def items(self, namespace: str) -> dict[str, str]:
        """Returns a copy of a namespace.

        Raises:
            ConfigItemNotFoundError: there is none of that name.
        """
        if namespace not in self._namespaces:
            raise ConfigItemNotFoundError(namespace, None)
        return dict(self._namespaces[namespace])

    # Writing.

    def _check_waiting(self) -> None:
        if len(self._waiting) >= CHANGES_MAX:
            raise BusyError("changes of the key-value table", CHANGES_MAX)

    def _changed(self, namespace: str, key: str, value: str | None) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._waiting.append(_Change(namespace, key, value, done))
        if not self._writing and self._pause is None:
            self._write()
        return done

    def _write(self) -> None:
        self._writing, self._waiting = self._waiting, []
        self._begun_s = self._clock.seconds()
        # The thread sees a copy: the next state goes on to change.
        content = {namespace: dict(items) for namespace, items in self._next.items()}
        self._run_in_thread(partial(self._file.write, content)).addCallbacks(
            self._written, self._not_written
        )

    def _written(self, _: None) -> None:
        changes, self._writing = self._writing, []
        for change in changes:
            _apply(self._namespaces, change.namespace, change.key, change.value)
        self.version += 1
        self._rest()
        for change in changes:
            change.done.callback(None)

    def _not_written(self, failure: Failure) -> None:
        changes = self._writing + self._waiting
        self._writing, self._waiting = [], []
        self._begin_anew()
        self._rest()
        for change in changes:
            change.done.errback(failure)

    def _rest(self) -> None:
        """Begins the pause after a write, if it took long enough to need one."""
        pause_s = _PAUSE_RATIO * (self._clock.seconds() - self._begun_s)
        if pause_s < _PAUSE_S_MIN or self._is_stopping:
            self._go_on()
        else:
            self._pause = self._clock.callLater(min(pause_s, _PAUSE_S_MAX), self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        if self._waiting:
            self._write()

    def _begin_anew(self) -> None:
        self._next = {namespace: dict(items) for namespace, items in self._namespaces.items()}
        self._next_count = sum(map(len, self._next.values()))
        self._next_bytes = file_bytes(self._next)


def _check_value(value: str) -> None:
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise RemoteProtocolError("value", value, "text in UTF-8") from error
    if size > VALUE_BYTES_MAX:
        raise RemoteProtocolError("value", value, f"at most {VALUE_BYTES_MAX} bytes")


def _apply(namespaces: Namespaces, namespace: str, key: str, value: str | None) -> None:
    if value is not None:
        namespaces.setdefault(namespace, {})[key] = value
        return
    items = namespaces.get(namespace, {})
    items.pop(key, None)
    if not items:
        namespaces.pop(namespace, None)


def _passed_to(result: object, seen: Deferred[None]) -> object:
    seen.callback(None)
    return result
