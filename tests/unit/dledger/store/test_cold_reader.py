"""Reads in a thread: bounded, reported in the reactor, and not at all after a stop."""

from collections.abc import Callable
from typing import Any

from ledgermq.dledger.errors import ColdDataError, LedgerError
from ledgermq.dledger.store import cold_reader
from ledgermq.dledger.store.cold_reader import ColdReader
from ledgermq.dledger.store.errors import UnreadableError


class Source:
    """A file that notes what is read."""

    def __init__(self, path: str = "file", error: LedgerError | None = None) -> None:
        self.path = path
        self.error = error
        self.loads: list[tuple[int, int]] = []

    def load(self, offset: int, size_bytes: int) -> None:
        self.loads.append((offset, size_bytes))
        if self.error is not None:
            raise self.error


class Turns:
    """A reactor and its thread, both run by hand."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.calls: list[Callable[[], None]] = []

    def callFromThread(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.calls.append(lambda: function(*arguments))

    def callInThreadWithCallback(
        self, answer: Callable[[bool, Any], object], function: Callable[..., Any], *arguments: Any
    ) -> None:
        self.work.append(lambda: _call(answer, function, arguments))

    def run(self) -> None:
        for steps in (self.work, self.calls):
            while steps:
                steps.pop(0)()


def _call(
    answer: Callable[[bool, Any], object], function: Callable[..., Any], arguments: Any
) -> None:
    answer(True, function(*arguments))


def test_bytes_are_read_in_the_thread_and_reported() -> None:
    turns, file, done = Turns(), Source(), list[LedgerError | None]()
    reader = ColdReader(turns, "test", turns)
    assert reader.load(ColdDataError([(file, 0, 10), (file, 50, 20)]), done.append)
    assert (file.loads, done, reader.read_count, reader.byte_count) == ([], [], 1, 30)
    turns.run()
    assert (file.loads, done) == ([(0, 10), (50, 20)], [None])
    assert (reader.read_count, reader.byte_count, reader.done_count) == (0, 0, 1)


def test_what_cannot_be_read_is_reported_as_the_error() -> None:
    turns, done = Turns(), list[LedgerError | None]()
    error = UnreadableError("file", 0, 10, "Input/output error")
    reader = ColdReader(turns, "test", turns)
    reader.load(ColdDataError([(Source(error=error), 0, 10)]), done.append)
    turns.run()
    assert done == [error]


def test_reads_that_wait_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(cold_reader, "BYTES_MAX", 100)
    monkeypatch.setattr(cold_reader, "READS_MAX", 3)
    turns, done = Turns(), list[LedgerError | None]()
    reader = ColdReader(turns, "test", turns)

    def load(size_bytes: int) -> bool:
        return reader.load(ColdDataError([(Source(), 0, size_bytes)]), done.append)

    # A single read of any size passes.
    assert load(1000) and not load(1)
    turns.run()
    assert [load(10) for _ in range(4)] == [True, True, True, False]
    turns.run()
    assert load(60) and not load(60)


def test_a_stopped_reader_reports_nothing() -> None:
    turns, done = Turns(), list[LedgerError | None]()
    reader = ColdReader(turns, "test", turns)
    reader.load(ColdDataError([(Source(), 0, 10)]), done.append)
    reader.stop()
    turns.run()
    assert not done
    assert not reader.load(ColdDataError([(Source(), 0, 10)]), done.append)
