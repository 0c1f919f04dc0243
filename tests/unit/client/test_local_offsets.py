"""Offsets of a broadcast consumer in their file."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from ledgermq.client.errors import ConfigError
from ledgermq.client.local_offsets import LocalOffsets, offsets_path
from ledgermq.protocol.bodies import MessageQueue
from tests.unit.client.parts import OTHER, QUEUE

FILES = {"offsets.json", "offsets.json.copy"}


def test_what_is_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "offsets.json"

    async def scenario() -> None:
        first = LocalOffsets(path)
        assert await first.committed(QUEUE) is None
        await first.commit(QUEUE, 7)
        await first.commit(OTHER, 9)
        await first.commit(QUEUE, 8)
        again = LocalOffsets(path)
        assert (await again.committed(QUEUE), await again.committed(OTHER)) == (8, 9)

    asyncio.run(scenario())
    value = json.loads(path.read_text())
    assert value.pop("ledgermqSeal") and value == {"T": {"b": {"0": 8, "1": 9}}}
    assert {found.name for found in path.parent.iterdir()} == FILES


@pytest.mark.parametrize("text", ["", "[]", '{"T": 1}', '{"T": {"b": {"x": 1}}}', "\udcff"])
def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match="offsets.json"):
        LocalOffsets(path)


def test_a_file_that_cannot_be_written_fails_the_commit(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    offsets = LocalOffsets(tmp_path / "taken" / "offsets.json")
    with pytest.raises(ConfigError, match="taken"):
        asyncio.run(offsets.commit(QUEUE, 1))


def test_a_file_that_would_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalOffsets(path, bytes_max=60)

    async def scenario() -> None:
        await offsets.commit(QUEUE, 7)
        with pytest.raises(ConfigError, match=r"would have \d+ bytes; allowed: 60"):
            await offsets.commit(MessageQueue("x" * 60, "b", 0), 8)
        assert await LocalOffsets(path, bytes_max=60).committed(QUEUE) == 7

    asyncio.run(scenario())


def test_many_queues_are_one_write_and_the_loop_goes_on_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "offsets.json"
    queues = [MessageQueue("T", "b", number) for number in range(64)]
    begun, goes_on = threading.Event(), threading.Event()
    syncs: list[int] = []
    fsync = os.fsync

    def slow(file: int) -> None:
        syncs.append(file)
        begun.set()
        assert goes_on.wait(60), "the loop waits for the disk"
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)

    async def scenario() -> None:
        offsets = LocalOffsets(path)
        first = asyncio.gather(*(offsets.commit(queue, 1) for queue in queues))
        while not begun.is_set():
            await asyncio.sleep(0)
        # While the first write waits for the disk; they are in the next.
        second = asyncio.gather(*(offsets.commit(queue, 2) for queue in queues))
        await asyncio.sleep(0)
        goes_on.set()
        await first
        await second
        again = LocalOffsets(path)
        assert [await again.committed(queue) for queue in queues] == [2] * 64

    asyncio.run(scenario())
    assert len(syncs) == 2 * 4, "the file, and its name; and its copy"


def test_names_become_one_file_below_the_directory(tmp_path: Path) -> None:
    assert offsets_path(tmp_path, None, "g") == tmp_path / "default" / "g.json"
    path = offsets_path(tmp_path, "../x", "a/../b")
    assert path.parent.parent == tmp_path


def test_two_members_with_one_file_never_spoil_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs of one broadcast group on one machine: one writes while the other one does."""
    path = tmp_path / "offsets.json"
    sync, is_first, other_is_done = os.fsync, [True], threading.Event()

    def held_up(descriptor: int) -> None:
        if is_first:
            is_first.clear()
            assert other_is_done.wait(60)
        sync(descriptor)

    async def scenario() -> None:
        one, other = LocalOffsets(path), LocalOffsets(path)
        monkeypatch.setattr(os, "fsync", held_up)
        first = asyncio.create_task(one.commit(QUEUE, 1_000_000))
        while is_first:
            await asyncio.sleep(0.001)
        await other.commit(QUEUE, 7)
        assert await LocalOffsets(path).committed(QUEUE) == 7
        other_is_done.set()
        await first
        assert await LocalOffsets(path).committed(QUEUE) == 1_000_000

    asyncio.run(scenario())
    assert {found.name for found in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("name", ["offsets.json", "offsets.json.copy"])
@pytest.mark.parametrize("damage", [b"", b"noise", None, "older", "another"])
def test_one_of_two_files_may_be_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: bytes | str | None
) -> None:
    path, other = tmp_path / "offsets.json", tmp_path / "other" / "offsets.json"

    async def scenario() -> None:
        offsets = LocalOffsets(path)
        await offsets.commit(QUEUE, 6)
        older = (tmp_path / name).read_bytes()
        await offsets.commit(QUEUE, 7)
        stranger = LocalOffsets(other)
        for offset in range(100, 104):
            await stranger.commit(QUEUE, offset)
        known = {"older": older, "another": other.read_bytes()}
        if damage is None:
            (tmp_path / name).unlink()
        else:
            bad = known[damage] if isinstance(damage, str) else damage
            (tmp_path / name).write_bytes(bad)
        assert await LocalOffsets(path).committed(QUEUE) == 7
        assert f"{name}: " in caplog.text
        (tmp_path / "offsets.json").write_bytes(b"noise")
        (tmp_path / "offsets.json.copy").write_bytes(b"noise")
        with pytest.raises(ConfigError, match="offsets.json: no seal"):
            LocalOffsets(path)

    asyncio.run(scenario())
