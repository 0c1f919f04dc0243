"""Bodies that grow, or take for ever, when they are unpacked; and what a Celery worker is told.

Nothing here asserts a time: the work is counted, or bounded by the memory of the process.
"""

from __future__ import annotations

import base64
import bz2
import json
import lzma
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lz4.frame
import pytest
import zstandard

from ledgermq.celery.bindings import Bindings
from ledgermq.celery.claims import decode_entry
from ledgermq.celery.foreign import BODY_BYTES_MAX, check_task, read_object
from ledgermq.protocol import sysflag
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.errors import RemoteProtocolError

MIB = 1 << 20
ZSTD = sysflag.COMPRESSED | sysflag.COMPRESSION_ZSTD
LZ4 = sysflag.COMPRESSED | sysflag.COMPRESSION_LZ4
ZLIB = sysflag.COMPRESSED | sysflag.COMPRESSION_ZLIB
DEEP = "[" * 200_000


@contextmanager
def little_memory(bytes_max: int) -> Iterator[None]:
    """Fails when Python's own memory grows beyond a bound on the way."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= bytes_max


def test_body_of_empty_zstandard_frames_is_refused_behind_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    real = zstandard.ZstdDecompressor

    def counted(*args: Any, **options: Any) -> Any:
        made.append(1)
        return real(*args, **options)

    monkeypatch.setattr(zstandard, "ZstdDecompressor", counted)
    frame = zstandard.compress(b"")
    for body in (frame * 2, frame * 400_000, zstandard.compress(b"x") + frame * 400_000):
        del made[:]
        with pytest.raises(RemoteProtocolError, match="bytes behind it"):
            decompress(body, ZSTD, 4 * MIB)
        assert len(made) <= 2


def test_zstandard_frame_gets_no_window_that_it_asks_for() -> None:
    """A frame of some bytes may ask for a window of 2 GiB."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = packer.compress(b"small") + packer.flush()
    with pytest.raises(RemoteProtocolError, match="memory|window"):
        decompress(body, ZSTD, MIB)
    assert decompress(zstandard.ZstdCompressor(level=19).compress(bytes(MIB)), ZSTD, MIB)


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (zlib.compress(bytes(256 * MIB), 9), ZLIB),
        (lz4.frame.compress(bytes(256 * MIB)), LZ4),
        (zstandard.compress(bytes(256 * MIB)), ZSTD),
    ],
    ids=["zlib", "lz4", "zstd"],
)
def test_bomb_gives_no_more_than_the_limit(body: bytes, sys_flag: int) -> None:
    with (
        little_memory(16 * MIB),
        pytest.raises(RemoteProtocolError, match="more than 4194304"),
    ):
        decompress(body, sys_flag, 4 * MIB)


def test_frame_with_another_behind_it_is_not_cut_in_silence() -> None:
    for pack, sys_flag in ((lz4.frame.compress, LZ4), (zstandard.compress, ZSTD)):
        with pytest.raises(RemoteProtocolError, match="bytes behind it"):
            decompress(pack(b"one") + pack(b"two"), sys_flag, MIB)


def task(packed: bytes, compression: str | None = None, /, **changes: Any) -> dict[str, Any]:
    headers = {} if compression is None else {"compression": compression}
    made = {
        "body": base64.b64encode(packed).decode(),
        "headers": headers,
        "properties": {"body_encoding": "base64", "delivery_info": {}},
    }
    return {**made, **changes}


@pytest.mark.parametrize("name", ["gzip", "application/x-gzip", "bzip2", "application/x-lzma"])
def test_bomb_in_a_task_is_refused_before_kombu_unpacks_it(name: str) -> None:
    pack = {"gzip": zlib.compress, "application/x-gzip": zlib.compress}.get(name)
    pack = pack or {"bzip2": bz2.compress}.get(name, lzma.compress)
    bomb = pack(bytes(BODY_BYTES_MAX + 2 * MIB))
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        check_task(task(bomb, name))
    check_task(task(pack(b"fine"), name))
    with pytest.raises(ValueError):
        check_task(task(b"not packed at all", name))


@pytest.mark.parametrize(
    "change",
    [
        {"properties": []},
        {"properties": {"delivery_info": 7}},
        {"headers": ["compression"]},
        {"body": {"a": 1}},
        {"properties": {"delivery_info": {}, "body_encoding": "no-codec"}},
        {"properties": {"delivery_info": {}, "body_encoding": [1]}},
    ],
)
def test_task_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        check_task(task(b"body", **change))


@pytest.mark.parametrize(
    "change",
    [
        {"body": "a"},
        {"body": "\ud800", "properties": {"delivery_info": {}, "body_encoding": "utf-8"}},
        {"content-type": [1]},
        {"content-encoding": {}},
        {"headers": {"task": [1]}},
    ],
)
def test_task_that_kombu_or_celery_could_not_read_is_refused_before(change: dict[str, Any]) -> None:
    """What ended one worker is given to the next one."""
    with pytest.raises(ValueError):
        check_task(task(b"body", **change))


@pytest.mark.parametrize(("name", "pack"), [("bzip2", bz2.compress), ("xz", lzma.compress)])
def test_bomb_behind_a_first_piece_is_refused(name: str, pack: Callable[[bytes], bytes]) -> None:
    """kombu unpacks all pieces: 201 bytes became 140 MiB."""
    with pytest.raises(ValueError, match="more than one piece"):
        check_task(task(pack(b"x") + pack(bytes(BODY_BYTES_MAX + MIB)), name))


def test_text_nested_without_end_is_no_object_and_ends_no_worker() -> None:
    for text in (DEEP, '{"properties":' + DEEP, "7", '"x"', "[]", ""):
        with pytest.raises(ValueError):
            read_object(text)
        assert decode_entry(text.encode()) is None
    for text in ('{"at":Infinity,"owners":[],"reset":0,"next":1,"held":[]}', '{"o":"x","n":1e999}'):
        assert decode_entry(text.encode()) is None


def test_items_of_the_name_server_by_anybody_are_left_out() -> None:
    good = json.dumps({"queue": "q", "exchange": "e", "kind": "topic", "key": "a.#"})
    bad = (
        DEEP, '{"queue":"q","exchange":"e","kind":"topic","key":7}', '{"exchange":[],"kind":"x"}',
        '{"queue":{"a":1}}', "[1,2]",
    )  # fmt: skip
    table = Bindings({str(number): text for number, text in enumerate((*bad, good))})
    assert table.queues_for("e", "a.b.c") == ["q"] and not table.queues


def test_pattern_of_many_wildcards_is_matched_in_bounded_steps() -> None:
    """With each `#` the number of ways to stand for words once grew by a factor."""
    pattern = ".".join(["#", "a"] * 100 + ["z"])
    item = json.dumps({"queue": "q", "exchange": "e", "kind": "topic", "key": pattern})
    table = Bindings({"one": item})
    assert table.queues_for("e", ".".join(["a"] * 400)) == []
    assert table.queues_for("e", ".".join(["a"] * 400 + ["z"])) == ["q"]
