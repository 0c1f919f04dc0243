"""Tasks by anybody with a right to the topic: what Celery would fall over is not handed on.

Such a message ends the worker that is given it, and then each that it goes on with.
"""

import base64
import json
from typing import Any

import pytest
import zstandard
from kombu import compression

from ledgermq.celery.foreign import BODY_BYTES_MAX, check_task
from tests.attack.test_hostile_bodies import MIB, little_memory

ZSTD_NAMES = ["zstd", "zstandard", "application/zstd"]


def packed_task(packed: bytes, kind: Any) -> dict[str, Any]:
    return {
        "body": base64.b64encode(packed).decode(),
        "headers": {"compression": kind},
        "properties": {"body_encoding": "base64", "delivery_info": {}},
    }


@pytest.fixture(scope="module")
def bomb() -> bytes:
    packer = zstandard.ZstdCompressor().compressobj(size=256 * MIB)
    pieces = [packer.compress(bytes(16 * MIB)) for _ in range(16)]
    return b"".join(pieces) + packer.flush()


@pytest.mark.parametrize("kind", ZSTD_NAMES)
def test_zstandard_bomb_is_refused_before_kombu_unpacks_it(kind: str, bomb: bytes) -> None:
    with (
        little_memory(2 * BODY_BYTES_MAX + 16 * MIB),
        pytest.raises(ValueError, match="more than 67108864"),
    ):
        check_task(packed_task(bomb, kind))
    check_task(packed_task(zstandard.compress(b"fine"), kind))


def test_zstandard_body_of_several_frames_is_refused() -> None:
    """kombu unpacks all of them with some packages, and the first one with others."""
    with pytest.raises(ValueError, match="bytes behind it"):
        check_task(packed_task(zstandard.compress(b"x") + zstandard.compress(b"y"), "zstd"))


@pytest.mark.parametrize("kind", ["br", "brotli", "application/x-brotli", "no-such", [1], {}, 7])
def test_compression_without_a_bound_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="compression is .*, allowed are .*zstd"):
        check_task(packed_task(b"packed", kind))


def test_compression_that_a_program_registers_is_its_own() -> None:
    compression.register(bytes, bytes, "application/x-own", aliases=["own"])
    try:
        for kind in ("own", "application/x-own"):
            check_task(packed_task(b"packed", kind))
    finally:
        del compression._encoders["application/x-own"], compression._decoders["application/x-own"]
        del compression._aliases["own"]


def celery_task(**headers: Any) -> dict[str, Any]:
    """A message as Celery 5 sends it."""
    return {
        "body": base64.b64encode(json.dumps([[1, 2], {}, {}]).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py", "task": "shop.add", "id": "x", "shadow": None, "eta": None,
            "expires": None, "group": None, "group_index": None, "retries": 0,
            "timelimit": [None, None], "root_id": "x", "parent_id": None, "argsrepr": "(1, 2)",
            "kwargsrepr": "{}", "origin": "gen1@host", "ignore_result": False,
            "replaced_task_nesting": 0, "stamped_headers": None, "stamps": {}, **headers,
        },
        "properties": {
            "correlation_id": "x", "reply_to": "r", "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": "celery"},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {"id": [1]},
        {"id": 7},
        {"root_id": {}},
        {"parent_id": [1]},
        {"group": {"a": 1}},
        {"shadow": [1]},
        {"eta": 1e300},
        {"eta": ""},
        {"eta": "0001-01-01T00:00:00+14:00"},
        {"eta": "9999-12-31T23:59:59-14:00"},
        {"expires": 7},
        {"expires": ""},
        {"expires": "0001-01-01T00:00:00+14:00"},
        {"retries": "x"},
        {"timelimit": [1, 2, 3]},
        {"timelimit": "ab"},
        {"timelimit": [1, "2"]},
        {"timelimit": 7},
        {"stamped_headers": 7},
        {"stamped_headers": ["a", [1]]},
        {"stamps": 7},
    ],
)
def test_header_that_celery_cannot_hash_or_reckon_with_is_refused(headers: dict[str, Any]) -> None:
    name = next(iter(headers))
    with pytest.raises(ValueError, match=name):
        check_task(celery_task(**headers))


@pytest.mark.parametrize("name", ["correlation_id", "reply_to"])
def test_property_that_celery_makes_a_name_of_is_refused(name: str) -> None:
    task = celery_task()
    task["properties"][name] = 7
    with pytest.raises(ValueError, match=name):
        check_task(task)
    del task["headers"]["task"]
    # What is no task may say what it likes.
    check_task(task)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"eta": "2031-05-06T07:08:09.123456+00:00", "expires": "2031-05-06T07:08:09"},
        # Celery refuses these itself, and goes on.
        {"eta": "soon"},
        {"timelimit": [30, 20.5], "retries": 3, "group": "g", "group_index": 4},
        {"timelimit": None, "retries": None},
        {"stamped_headers": ["a"], "stamps": {"a": [1, 2]}},
        {"of_the_application": {"any": ["thing"]}},
    ],
)
def test_task_as_celery_sends_it_passes(headers: dict[str, Any]) -> None:
    check_task(celery_task(**headers))


def body_task(body: Any, **headers: Any) -> dict[str, Any]:
    return {
        **celery_task(**headers),
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
    }


@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        "abc",
        [1, 2],
        [[1], {}, {}, {}],
        [7, {}, {}],
        [[1], [1], {}],
        [[1], {}, [1]],
        {"a": 1, "b": 2, "c": 3},
        {"args": [1], "kwargs": [1]},
        {"args": 7},
        {"args": [], "id": [1]},
        {"args": [], "eta": ""},
    ],
)
def test_body_that_celery_cannot_take_apart_is_refused(body: Any) -> None:
    task = body_task(body)
    if isinstance(body, dict):
        # Where both are, Celery takes the headers'.
        del task["headers"]["id"], task["headers"]["eta"]
    with pytest.raises(ValueError, match="body|id|eta"):
        check_task(task)


def test_task_without_an_id_is_refused() -> None:
    task = celery_task()
    del task["headers"]["id"]
    with pytest.raises(ValueError, match="id is no text"):
        check_task(task)


@pytest.mark.parametrize("kind", [None, "", "application/data", "application/text"])
def test_task_whose_body_kombu_leaves_as_it_is_is_refused(kind: str | None) -> None:
    """These kinds are always accepted, and give text or bytes where Celery expects three values."""
    with pytest.raises(ValueError, match="content-type"):
        check_task({**celery_task(), "content-type": kind})


@pytest.mark.parametrize("kind", ["application/json", "application/x-yaml"])
def test_task_without_a_body_is_refused(kind: str) -> None:
    for body in ("", None):
        with pytest.raises(ValueError, match="body"):
            check_task({**celery_task(), "body": body, "content-type": kind})


def test_bodies_of_all_kinds_pass() -> None:
    check_task(body_task([[1], {"a": 1}, None]))
    # Of the first protocol, with the headers of the second.
    hybrid = body_task({"id": "x", "args": [1], "kwargs": {}})
    del hybrid["headers"]["id"]
    check_task(hybrid)
    # Of no task; and what is no JSON: Celery refuses it itself, and goes on.
    check_task(body_task(None, task=None))
    check_task({**celery_task(), "body": base64.b64encode(b"\xff[").decode()})
    check_task({**body_task("abc"), "content-type": "application/x-python-serialize"})
