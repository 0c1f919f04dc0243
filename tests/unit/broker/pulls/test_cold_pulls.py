"""Pulls of messages that are not in the page cache: a thread reads them, no turn waits."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.broker.pulls.quick_pulls import QuickPulls
from ledgermq.dledger.store import cold_reader
from ledgermq.dledger.store.cold_reader import ColdReader
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.state.errors import SystemBusyError
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts
from tests.unit.broker.pulls.test_pull import pull_of
from tests.unit.commitlog.single_member import Broker
from tests.unit.commitlog.test_dispatch import message
from tests.unit.dledger.store.test_cold_reader import Turns


class PageCache:
    """Holds the pages that the thread has read; a read elsewhere that would wait is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: set[tuple[int, int]] = set()
        self.is_thread = False
        self.is_broken = False
        self._pread, self._preadv = os.pread, os.preadv
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def pread(self, number: int, size_bytes: int, offset: int) -> bytes:
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        assert self.is_thread, "a turn waits for the disk"
        self.pages |= self._pages_of(number, size_bytes, offset)
        return self._pread(number, size_bytes, offset)

    def preadv(self, number: int, buffers: Any, offset: int, flags: int) -> int:
        if not self._pages_of(number, len(buffers[0]), offset) <= self.pages:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._preadv(number, buffers, offset, flags)

    def _pages_of(self, number: int, size_bytes: int, offset: int) -> set[tuple[int, int]]:
        inode = os.fstat(number).st_ino
        return {(inode, page) for page in range(offset // 4096, (offset + size_bytes) // 4096 + 1)}


class Site:
    """A broker whose messages are on disk and not in memory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts = Parts().lead()
        self.parts.state.put_topic(TopicConfig("T", 4, 4))
        self.broker = Broker(root, segment_bytes=1 << 20).lead()
        for n in range(60):
            self.broker.send(message(b"%d" % n * 500, topic="T", queue_id=n % 2))
        self.broker.store.flush()
        self.turns = Turns()
        self.reader = ColdReader(self.turns, "test", self.turns)
        self.pulls = PullProcessor(
            self.parts.config,
            self.parts.leadership,
            self.parts.state,
            self.parts.clients,
            self.broker.store,
            self.parts.parked,
            lambda: 0.0,
            20_000,
            Statistics("C", 0),
            cold_reader=self.reader,
        )
        self.connection: Any = ListConnection()
        self.warm = self.answer(pull_of(1))
        self.cache = PageCache(monkeypatch)

    def answer(self, pull: RemotingCommand) -> bytes:
        """The answer that is there by now, b"" when there is none."""
        answer = self.pulls.pull(self.connection, pull)
        assert answer is None
        return self.written()

    def written(self) -> bytes:
        writes = b"".join(self.connection.writes)
        self.connection.take()
        return writes

    def load(self) -> None:
        """What waits in the thread is read, and the reactor told."""
        self.cache.is_thread = True
        while self.turns.work:
            self.turns.work.pop(0)()
        self.cache.is_thread = False
        self.turns.run()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path, monkeypatch)
    yield site
    monkeypatch.undo()
    site.broker.close()


def test_a_cold_pull_is_answered_when_its_bytes_are_read(site: Site) -> None:
    assert site.warm.count(b"1111") and site.answer(pull_of(1)) == b""
    for _ in range(4):
        if not site.turns.work:
            break
        site.load()
    assert site.written() == site.warm
    # In memory now: at once.
    assert site.answer(pull_of(1)) == site.warm


def test_a_quick_pull_leaves_cold_messages_to_the_other_way(site: Site) -> None:
    quick = QuickPulls(site.pulls, site.broker.store)
    queue = site.broker.store.find_queue("T", 1)
    assert queue is not None and quick._find_run(queue, 0, 32) is None


def test_a_pull_over_the_limit_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_reader, "READS_MAX", 1)
    assert site.answer(pull_of(1)) == b""
    with pytest.raises(SystemBusyError, match="1 reads wait for the disk"):
        site.pulls.pull(site.connection, pull_of(0))


def test_a_cold_pull_that_cannot_be_read_is_damage(site: Site) -> None:
    found: list[Exception] = []
    site.broker.store.on_damage(found.append)
    assert site.answer(pull_of(1)) == b""
    site.cache.is_broken = True
    while site.turns.work:
        site.load()
    (answer,) = site.connection.take()
    assert answer.code == ResponseCode.SYSTEM_ERROR and "Input/output error" in answer.remark
    assert found


def test_nothing_is_answered_to_a_connection_that_closed(site: Site) -> None:
    assert site.answer(pull_of(1)) == b""
    site.connection.is_open = False
    for _ in range(4):
        site.load()
    assert site.written() == b"" and not site.connection.take()


def test_an_offset_that_came_along_is_stored_once(site: Site) -> None:
    told: list[int] = []
    site.pulls.commit_offset = lambda *place: told.append(place[-1])  # type: ignore[method-assign]
    pull = pull_of(1)
    assert pull.ext_fields is not None
    pull.ext_fields.update({"sysFlag": "7", "commitOffset": "3", "consumerGroup": "g"})
    assert site.answer(pull) == b""
    for _ in range(4):
        site.load()
    assert site.written() == site.warm and told == [3]
