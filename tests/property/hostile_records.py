"""Records of the broker's state with any content: right ones, and what changes of them make.

Every value is drawn from a seed, so a failed case can be repeated.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

NAMES = (
    *("a", "b", "T1", "%RETRY%g", "%LMQ%a", "a@b", "x@y@z", "", "@", "@@", "a@", "@a"),
    *("\ud800", "a@\udfff", "\ud800@g", "\U0001f600", "é", "\x00", "\n\t\x7f", "\u2028", '"\\'),
    *("z" * 300, "z" * 5000, "0", "00", "1", "-1", "٠", "²", "2147483648", "9" * 11),
    *("record", "topics", "message.type", "+message.type"),
)
NUMBERS = (
    *(0, 1, -1, 7, 2**31 - 1, 2**31, 2**63 - 2, 2**63 - 1, 2**63, -(2**63), 2**70, 10**400),
    *(True, False, None, 1.5, -0.0, 1e308, float("inf"), float("nan")),
)


class Records:
    """Draws bodies of records."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def body(self) -> bytes:
        """Returns a body: sound, or mutated in its members or its bytes."""
        record = self._sound()
        if self._rng.random() < 0.6:
            record = self._mutated(record, 0)
        if isinstance(record, dict):
            record.setdefault("v", 1)
        text = json.dumps(record)
        kind = self._rng.random()
        if kind < 0.02:
            return self._damaged(text.encode())
        if kind < 0.03:
            return text.replace(": 1", ": " + "[" * 60_000 + "]" * 60_000, 1).encode()
        if kind < 0.04:
            return text.replace(": 1", ": " + '{"a":' * 40 + "1" + "}" * 40, 1).encode()
        if kind < 0.06 and text.startswith("{"):
            # Each member twice: the second one counts.
            return ("{" + text[1:-1] + "," + text[1:]).encode()
        return text.encode()

    def _damaged(self, body: bytes) -> bytes:
        at = self._rng.randrange(len(body))
        return body[:at] + bytes([self._rng.randrange(256)]) + body[at + self._rng.randrange(3) :]

    def _sound(self) -> Any:
        draw, count = self._rng.choice, self._rng.randrange
        topic, group = draw(NAMES), draw(NAMES)
        pair = f"{topic}@{group}"
        kind = draw(("topics", "groups", "offsets", "expired", "locks", "plan", "access"))
        record: dict[str, Any] = {"v": 1, "by": "n0/1", "kind": kind}
        version = {"counter": draw(NUMBERS), "timestamp": draw(NUMBERS)}
        settings = {
            "attributes": {draw(NAMES): draw(NAMES)},
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "subscriptionDataSet": [{"topic": draw(NAMES)}],
            "brokerId": draw(NUMBERS),
            "consumeTimeoutMinute": 3,
        }
        config = {"perm": 6, "readQueueNums": 4, "topicSysFlag": draw(NUMBERS), **settings}
        if self._rng.random() < 0.3:
            return record | self._sweep_part(topic, group)
        if kind in ("topics", "groups"):
            changes = {"put": {topic: config}, "removed": [draw(NAMES)], "version": version}
            return {**record, **changes, "forgets": self._rng.random() < 0.5}
        if kind == "offsets":
            return {**record, "put": {pair: {str(count(3)): draw(NUMBERS)}, draw(NAMES): {"0": 1}}}
        if kind == "expired":
            return {**record, "put": {pair: {}}}
        if kind == "locks":
            return {**record, "put": {group: [[topic, "b", draw(NUMBERS), draw(NAMES)]]}}
        if kind == "plan":
            return {"v": 1, "kind": "plan", "runs": [[count(3), draw(NUMBERS), count(3)]]}
        return {**record, "changed": draw(NUMBERS), "sealed": draw(NAMES)}

    def _sweep_part(self, topic: str, group: str) -> dict[str, Any]:
        draw = self._rng.choice
        puts: dict[str, Any] = {
            "topics": {topic: {"perm": 6, "attributes": {topic: group}}},
            "groups": {group: {"retryMaxTimes": draw(NUMBERS), "attributes": {topic: group}}},
            "offsets": {f"{topic}@{group}": {"0": draw(NUMBERS)}},
            "locks": {group: [[topic, "b", 1, "c"], [topic, "b", True, "d"]]},
            "rules": {"record": {"kind": "access", "changed": 3, "sealed": topic}},
        }
        table = draw(list(puts))
        return {
            "kind": "sweep",
            "id": "n0/1/1",
            "part": self._rng.randrange(3),
            "last": self._rng.random() < 0.3,
            "table": table,
            "put": puts[table],
            "after": draw(("", topic, None)),
            "upto": draw((None, topic, "zz", f"{topic}@{group}", group)),
            "goes_on": draw((True, False, 1)),
            "progress": {"0": draw(NUMBERS), "1": 2},
        }

    def _mutated(self, value: Any, depth: int) -> Any:
        if self._rng.random() < 0.1:
            return self._any(depth)
        if isinstance(value, dict):
            changed = {}
            for name, member in value.items():
                fate = self._rng.random()
                if fate < 0.05:
                    continue
                key = self._rng.choice(NAMES) if fate < 0.1 else name
                changed[key] = self._mutated(member, depth + 1)
            return changed
        if isinstance(value, list):
            return [self._mutated(member, depth + 1) for member in value]
        return value

    def _any(self, depth: int) -> Any:
        kind = self._rng.random()
        if kind < 0.3 or depth > 3:
            return self._rng.choice(NUMBERS)
        if kind < 0.6:
            return self._rng.choice(NAMES)
        members = range(self._rng.randrange(4))
        if kind < 0.8:
            return [self._any(depth + 1) for _ in members]
        return {self._rng.choice(NAMES): self._any(depth + 1) for _ in members}
