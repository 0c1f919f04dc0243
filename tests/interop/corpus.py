"""The messages each stock client sends: drawn from a seed, written to a file that it reads.

A corpus file is a run of: 4 head size, head, 4 body size, body (big-endian sizes). A head is UTF-8
text of lines: sequence number, lane (the queue it is for), tags, keys, then `name=value` for each
user property. The programs stay small this way, and what was expected is known here alone: they
never make up a message, and they never judge one.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

QUEUE_COUNT: Final = 4
BODY_BYTES_MAX: Final = 1024 * 1024

_SIZE: Final = struct.Struct(">i")
# Share of messages and their body sizes in bytes; drawn log-uniformly within a row.
_SIZES: Final = (
    (0.620, 1, 1_024),
    (0.280, 1_024, 8_192),
    (0.085, 8_192, 65_536),
    (0.014, 65_536, 262_144),
    (0.001, 262_144, BODY_BYTES_MAX),
)
_WORDS: Final = (
    "order",
    "straße",
    "消息",
    "naïve",
    "мир",
    "日本語",
    "payload",
    "🚀",
    "zażółć",
    "0123456789",
)
_TAGS: Final = ("TagA", "TagB", "tag-c", "тег", "標籤")


@dataclass(slots=True, frozen=True, kw_only=True)
class Draft:
    """One message before it is sent."""

    # Position in its corpus, from 0; also the user property `seq`.
    seq: int
    # Queue it is to go to where the client lets a program choose.
    lane: int
    tags: str
    keys: str
    # User properties in the order of the head.
    properties: dict[str, str]
    body: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the body in hex."""
        return hashlib.sha256(self.body).hexdigest()

    def head(self) -> bytes:
        """Return its head as the corpus file holds it."""
        lines = [str(self.seq), str(self.lane), self.tags, self.keys]
        lines += [f"{name}={value}" for name, value in self.properties.items()]
        return "\n".join(lines).encode()


@dataclass(slots=True, frozen=True, kw_only=True)
class Expected:
    """What a consumer must find of one message."""

    size: int
    digest: str
    # KEYS, TAGS and the user properties.
    properties: dict[str, str]


def draw(client: str, count: int, seed: int) -> Iterator[Draft]:
    """Yield the messages of one client: the same ones for the same arguments.

    The first is of exactly 1 byte, the last of exactly BODY_BYTES_MAX; bodies are half text that
    compresses, half noise that does not, and every size near the compression threshold occurs.
    """
    rng = random.Random(f"{seed}/{client}")
    fixed = {0: 1, count - 1: BODY_BYTES_MAX, count // 2: BODY_BYTES_MAX, 1: 4095, 2: 4096, 3: 4097}
    for seq in range(count):
        body = _body(rng, fixed.get(seq) or _draw_size(rng))
        digest = hashlib.sha256(body).hexdigest()
        properties = {
            "client": client,
            "seq": str(seq),
            "size": str(len(body)),
            "digest": digest,
            "note": " ".join(rng.choices(_WORDS, k=rng.randint(1, 6))),
            "equation": f'{rng.randint(0, 99)} & <x> "q" \\ {{y}} %41+;,|',
        }
        if rng.random() < 0.05:
            properties["long"] = "ß" * rng.randint(100, 3000)
        yield Draft(
            seq=seq,
            lane=seq % QUEUE_COUNT,
            tags=rng.choice(_TAGS),
            keys=f"{client}-{seq} k{rng.randint(0, 9)}é",
            properties=properties,
            body=body,
        )


def write(path: Path, client: str, count: int, seed: int) -> dict[int, Expected]:
    """Write a corpus file and return what is expected of each sequence number."""
    expected: dict[int, Expected] = {}
    with path.open("wb") as file:
        for draft in draw(client, count, seed):
            file.write(frame(draft))
            expected[draft.seq] = Expected(
                size=len(draft.body),
                digest=draft.properties["digest"],
                properties={"KEYS": draft.keys, "TAGS": draft.tags, **draft.properties},
            )
    return expected


def frame(draft: Draft) -> bytes:
    """Return one message as a corpus file holds it."""
    head = draft.head()
    return _SIZE.pack(len(head)) + head + _SIZE.pack(len(draft.body)) + draft.body


def _draw_size(rng: random.Random) -> int:
    row = rng.choices(_SIZES, weights=[share for share, _, _ in _SIZES])[0]
    low, high = row[1], row[2]
    return min(high, int(low * (high / low) ** rng.random()))


def _body(rng: random.Random, size: int) -> bytes:
    if rng.random() < 0.3:
        return rng.randbytes(size)
    unit = " ".join(rng.choices(_WORDS, k=200)).encode()
    text = (unit * (size // len(unit) + 1))[: size - size // 2]
    return text + rng.randbytes(size // 2)
