"""Flushes: what is under way comes to an end, whatever happens to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from ledgermq.broker.storage import flushes as flushes_module
from ledgermq.broker.storage.flushes import Flushes
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.broker.storage.state_tables import Encoding, StateTables
from ledgermq.commitlog import FlushJob
from ledgermq.commitlog.checkpoint import DispatchMark
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts


class AtOnce:
    """A keeper that does everything at once."""

    def run(self, begin: Callable[[], Any]) -> Deferred[Any]:
        return succeed(begin())

    def run_steps(self, steps: Any) -> Deferred[None]:
        for step in steps:
            step()
        return succeed(None)


class Changes:
    """Of no files."""

    def steps(self) -> list[Any]:
        return []

    removal_steps = steps


class Messages:
    """A message store that always wants a flush."""

    def __init__(self) -> None:
        self.marks = 0
        self.is_running = False

    def write(self, mark: Any) -> None:
        self.marks += 1

    def is_flush_due(self, now_ms: int) -> bool:
        return not self.is_running

    def begin_flush(self, now_ms: int) -> FlushJob:
        self.is_running = True
        mark = DispatchMark(index=0, term=0, end_position=0, timestamp=0, is_clean=False)
        parts: Any = (mark, Changes(), self)
        return FlushJob(*parts)

    def begin_log_sync(self) -> None:
        return None

    def end_flush(self, job: FlushJob) -> None:
        self.is_running = False

    def take_back_flush(self) -> None:
        self.is_running = False


class Scene:
    """A broker with many topics, encoded in many slices."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.messages = Messages()
        self.state = Parts().lead().state
        for number in range(50):
            self.state.put_topic(TopicConfig(f"T{number}", 1, 1))
        self.file = StateFile(folder / "topics.json")
        tables = StateTables(
            self.state, lambda name: StateFile(folder / name), lambda: 0.0, slice_chars=500
        )
        parts: Any = (AtOnce(), self.messages, tables, lambda: 0, self.clock.callLater)
        self.flushes = Flushes(*parts)

    def flush(self) -> None:
        self.flushes.begin_if_due(lambda error: pytest.fail(str(error)))
        self.clock.pump([0.05] * 100)

    def topics_on_disk(self) -> int:
        content = self.file.load()
        return 0 if content is None else sum(n.startswith("T") for n in content["topicConfigTable"])


def test_error_in_the_midst_of_an_encoding_ends_that_flush_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    step, count = Encoding.step, 0

    def fails_once(self: Encoding) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyError("planted")
        step(self)

    told: list[str] = []
    monkeypatch.setattr(Encoding, "step", fails_once)
    monkeypatch.setattr(flushes_module._log, "failure", told.append)
    scene.flush()
    assert scene.messages.marks == 0 and scene.flushes.is_idle and len(told) == 1
    scene.flush()
    assert scene.messages.marks == 1 and scene.flushes.is_idle
    assert scene.topics_on_disk() >= 50


def test_what_is_dropped_half_way_is_not_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.flushes.begin_if_due(lambda error: pytest.fail(str(error)))
    assert scene.flushes.is_encoding
    scene.flushes.drop()
    assert scene.flushes.is_idle and not scene.clock.getDelayedCalls()
    assert "topics" in scene.state.unsaved
    scene.flush()
    assert scene.messages.marks == 1 and scene.topics_on_disk() >= 50
