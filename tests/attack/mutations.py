"""Frames that are almost right: mutations that know what a frame is made of. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

_JSON, _BINARY = 0, 1
_FRAME_BYTES_MAX: Final = 2 << 20
_VALUES: Final[tuple[Any, ...]] = (
    "", "-1", "0", "1", "2147483647", "2147483648", "-2147483648", "9223372036854775807",
    "9223372036854775808", "1e3", "1.0", "NaN", " 1", "+1", "00", "1_0", "\u0661", "true", "TRUE",
    "null", "a" * 300, "b" * 70_000, "../../etc/passwd", "/", ".", "%RETRY%", "%DLQ%", "%LMQ%",
    "%RETRY%%RETRY%x", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "TBW102", "\x00",
    "\x01\x02\x01", "\ud800", "\U0001f600", "a > 1 AND (b IN ('x'))", "(" * 3000, "a || " * 500,
    None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 1.5, 1e308, [], {}, [[]],
    {"a": []}, ["x"] * 300,
)  # fmt: skip
_INTEGERS: Final = (0, 1, -1, 0x7F, 0x80, 0x7FFF, 0x8000, 2**31 - 1, -(2**31), 0xFFFFFF, 0x1000000)


def mutated(rng: Random, frames: Sequence[bytes], *, is_raw: bool = False) -> bytes:
    """Returns a frame with one to four things wrong, or some of them one behind the other.

    Args:
        rng: draws everything.
        frames: valid ones.
        is_raw: True where the stream has no frames of remoting: only bytes are changed.
    """
    data = rng.choice(frames)
    for _ in range(rng.randrange(1, 5)):
        step = rng.choice(_RAW_STEPS if is_raw else _STEPS)
        data = step(rng, data, frames)
    if rng.random() < 0.1:
        data = b"".join([data, *rng.choices(frames, k=rng.randrange(1, 4))])
    return data[:_FRAME_BYTES_MAX]


def _parts(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Serialize type, header and body of a frame; None when it is no longer one."""
    if len(data) < 8:
        return None
    kind, size = data[4], int.from_bytes(data[5:8], "big")
    if 8 + size > len(data):
        return None
    return kind, data[8 : 8 + size], data[8 + size :]


def _frame(kind: int, header: bytes, body: bytes) -> bytes:
    word = bytes([kind]) + (len(header) & 0xFFFFFF).to_bytes(3, "big")
    rest = word + header + body
    return len(rest).to_bytes(4, "big") + rest


def _change_header(rng: Random, data: bytes, frames: Sequence[bytes]) -> bytes:
    parts = _parts(data)
    if parts is None or parts[0] != _JSON:
        return _change_bytes(rng, data, frames)
    try:
        header = json.loads(parts[1])
    except ValueError:
        return _change_bytes(rng, data, frames)
    if not isinstance(header, dict):
        return data
    fields = header.get("extFields")
    if isinstance(fields, dict) and fields and rng.random() < 0.8:
        _change_value(rng, fields)
    else:
        _change_value(rng, header)
    return _frame(_JSON, _dump(header), parts[2])


def _change_value(rng: Random, table: dict[str, Any]) -> None:
    key = rng.choice([*table, "unknown", "batch", "code"])
    if rng.random() < 0.15:
        table.pop(key, None)
    elif key == "code" and rng.random() < 0.7:
        table[key] = rng.randrange(0, 400)
    else:
        table[key] = rng.choice(_VALUES)


def _dump(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _change_body(rng: Random, data: bytes, frames: Sequence[bytes]) -> bytes:
    parts = _parts(data)
    if parts is None:
        return data
    kind, header, body = parts
    try:
        document = json.loads(body)
    except ValueError:
        return _frame(kind, header, _change_bytes(rng, body or b"body", frames))
    return _frame(kind, header, _dump(_other(rng, document)))


def _other(rng: Random, value: Any) -> Any:
    """The document with one place in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        return {**value, key: _other(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], _other(rng, value[at]), *value[at + 1 :]]
    return rng.choice(_VALUES)


def _other_body(rng: Random, data: bytes, frames: Sequence[bytes]) -> bytes:
    mine, other = _parts(data), _parts(rng.choice(frames))
    return data if mine is None or other is None else _frame(mine[0], mine[1], other[2])


def _change_bytes(rng: Random, data: bytes, frames: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    if not changed:
        return rng.randbytes(8)
    at = rng.randrange(len(changed))
    kind = rng.randrange(5)
    if kind == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        size = rng.choice((1, 2, 4, 8))
        number = rng.choice(_INTEGERS) & ((1 << 8 * size) - 1)
        changed[at : at + size] = number.to_bytes(size, "big")
    elif kind == 2:
        del changed[at:]
    elif kind == 3:
        changed[at:at] = rng.randbytes(rng.choice((1, 3, 50)))
    else:
        changed[at:at] = changed[at : at + rng.randrange(1, 100)] * rng.randrange(1, 20)
    return bytes(changed)


def _lie_about_lengths(rng: Random, data: bytes, frames: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    if len(changed) < 8:
        return data
    if rng.random() < 0.5:
        changed[:4] = (rng.choice(_INTEGERS) & 0xFFFFFFFF).to_bytes(4, "big")
    else:
        changed[5:8] = (rng.choice(_INTEGERS) & 0xFFFFFF).to_bytes(3, "big")
    return bytes(changed)


def _other_serialization(rng: Random, data: bytes, frames: Sequence[bytes]) -> bytes:
    return data[:4] + bytes([rng.choice((0, 1, 2, 255))]) + data[5:]


_STEPS: Final = (
    _change_header, _change_header, _change_header, _change_header, _change_body, _change_body,
    _other_body, _change_bytes, _lie_about_lengths, _other_serialization,
)  # fmt: skip
_RAW_STEPS: Final = (_change_bytes,)
