"""Canned rows of topics, groups and brokers."""

import math
import os
import time
from typing import Any

SIZES = {"large": (1000, 2300), "single": (1, 1), "empty": (0, 0)}
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "a\u202eb\u0007c\nd\u0000e",
    "\"><script>alert('x')</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "\ufffd\ufffd\u00ff" + "w" * 200,
    "=HYPERLINK(1)",
)
# The pictures of the documentation do without them.
IS_HOSTILE = os.environ.get("CANNED_HOSTILE", "1") == "1"
NOUNS = "orders payments invoices shipments returns prices stock carts users logins".split()
PLACES = "eu us cn br in jp de fr".split()
START = time.time()


def now_ms() -> int:
    return int(time.time() * 1000)


def topic_name(i: int) -> str:
    if IS_HOSTILE and i < len(HOSTILE):
        return HOSTILE[i]
    return f"{NOUNS[i % 10]}-{PLACES[i % 8]}-{i:04d}"


def group_name(i: int) -> str:
    return topic_name(i) if IS_HOSTILE and i < len(HOSTILE) else f"{NOUNS[i % 10]}-worker-{i:04d}"


def answers(asked: int = 3, silent: int = 0) -> dict[str, Any]:
    lost = {"who": "broker-b n2", "address": "10.0.0.23:10911", "reason": "no answer within 3 s"}
    return {"asked": asked, "answered": asked - silent, "silent": [lost] * silent}


def wave(i: int, scale: float) -> float:
    return round(scale * (1.2 + math.sin(i * 1.7) + 0.2 * math.sin(time.time() / 7 + i)), 2)


def page(query: dict[str, str], rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    words = query.get("filter", "").lower()
    rows = [row for row in rows if words in str(row[key]).lower()]
    sort = {"name": key, "queues": "write_queues", "last_write": "last_write_ms"}.get(
        query.get("sort", ""), query.get("sort", "")
    )
    if rows and sort in rows[0]:
        down = query.get("order") == "desc"
        rows.sort(key=lambda row: (row[sort] is None, row[sort]), reverse=down)
    offset, limit = int(query.get("offset", 0)), int(query.get("limit", 50))
    return {"rows": rows[offset : offset + limit], "total": len(rows), "answers": answers()}


def topic_row(i: int) -> dict[str, Any]:
    kinds = ("normal", "normal", "normal", "fifo", "delay", "transaction")
    return {
        "topic": topic_name(i),
        "kind": kinds[i % 6],
        "brokers": ["broker-a", "broker-b"],
        "read_queues": 8,
        "write_queues": 8 if i % 9 else 16,
        "perm": 6,
        "order": False,
        "in_per_s": wave(i, 40),
        "in_bytes_per_s": wave(i, 40_000),
        "messages": i * 7919 % 1_000_003,
        "last_write_ms": now_ms() - i * 977,
        "groups": i % 4 + 1,
    }


STATES = (
    "fine",
    "fine",
    "behind",
    "fine",
    "offline",
    "stuck",
    "fine",
    "differs",
    "fine",
    "outside",
)


def group_row(i: int) -> dict[str, Any]:
    state = STATES[i % 10]
    lag = 0 if state == "fine" else (i * 48_271) % 2_000_003
    return {
        "group": group_name(i),
        "state": state,
        "is_system": False,
        "lag_messages": lag,
        "lag_ms": lag * 37 if lag else None,
        "out_per_s": 0.0 if state in ("stuck", "offline") else wave(i, 20),
        "online": 0 if state == "offline" else i % 5 + 1,
        "mode": "push",
        "model": "clustering",
        "retry_messages": i % 7,
        "dead_letters": i % 13 * 100 if i % 3 == 0 else 0,
    }


def event(ago_s: int, code: str, severity: str, subject: str, **values: str) -> dict[str, Any]:
    return {
        "at_ms": now_ms() - ago_s * 1000,
        "code": code,
        "severity": severity,
        "subject": subject,
        "text": f"{subject}: {code}",
        "values": values,
    }


EVENTS = (
    (140, "leader_changed", "warning", "broker-a", {"leader": "n1"}),
    (143, "member_gone", "critical", "broker-a n0", {}),
    (1260, "disk_high", "warning", "broker-b n2", {"ratio": "0.78"}),
    (2400, "member_back", "info", "broker-b n1", {}),
)


def overview(cluster: str) -> dict[str, Any]:
    topics, groups = SIZES[cluster]
    busy = cluster == "large"
    reason = {
        "code": "member_gone",
        "severity": "warning",
        "subject": "broker-b n2",
        "text": "broker-b n2 does not answer",
        "values": {},
    }
    return {
        "cluster": cluster,
        "at_ms": now_ms(),
        "health": "warning" if busy else "ok",
        "reasons": [reason] if busy else [],
        "in_per_s": wave(1, 9000) if busy else 0.0,
        "out_per_s": wave(2, 9500) if busy else 0.0,
        "in_bytes_per_s": wave(1, 9_000_000) if busy else 0.0,
        "out_bytes_per_s": wave(2, 9_500_000) if busy else 0.0,
        "lag_messages": 4_203_114 if busy else 0,
        "lag_age_s": 14.0 if busy else 0.5,
        "topics": topics,
        "consumer_groups": groups,
        "broker_groups": 2 if busy else 1,
        "members": 6 if busy else 3,
        "members_answering": 5 if busy else 3,
        "groups_without_leader": [],
        "disk": {
            "member": "broker-b n1",
            "used_ratio": 0.61,
            "free_bytes": 412 * 2**30,
            "days_left": 23.4 if busy else None,
        },
        "top_topics": [
            {"topic": topic_name(i), "in_per_s": wave(i, 400)} for i in range(min(topics, 10))
        ],
        "topics_asked": min(topics, 640),
        "top_lags": [
            {
                "group": group_name(i * 10 + 5),
                "lag_messages": 900_000 // (i + 1),
                "lag_ms": 340_000 // (i + 1),
            }
            for i in range(10 if busy else 0)
        ],
        "events": [event(*e[:4], **e[4]) for e in EVENTS] if busy else [],
        "answers": answers(6, 1) if busy else answers(),
    }


def member(group: str, i: int, silent: bool = False) -> dict[str, Any]:
    return {
        "broker_id": i,
        "member": f"n{i}",
        "address": f"10.0.{0 if group == 'broker-a' else 1}.{i + 1}:10911",
        "role": "UNKNOWN" if silent else ("LEADER" if i == 0 else "FOLLOWER"),
        "is_answering": not silent,
        "reason": "no answer within 3 s" if silent else "",
        "last_answer_ms": now_ms() - (94_000 if silent else 600),
        "answer_ms": None if silent else 1.2 + i,
        "term": None if silent else 17,
        "log_begin": 0,
        "log_end": None if silent else 88_402_113_536 - i * 4096,
        "behind_bytes": None if silent else i * 4096,
        "behind_s": None if silent else i * 0.2,
        "dispatch_behind_bytes": None if silent else 0,
        "in_per_s": 0.0 if i else wave(1, 4000),
        "out_per_s": 0.0 if i else wave(2, 4000),
        "disk_used_ratio": None if silent else 0.42 + i * 0.19,
        "disk_free_bytes": None if silent else 412 * 2**30,
        "oldest_ms": now_ms() - 71 * 3_600_000,
        "version": "0.9.0",
        "started_ms": now_ms() - 9 * 86_400_000,
        "repair": "whole",
        "alarms": [],
    }


def broker_groups(cluster: str) -> dict[str, Any]:
    names = ["broker-a", "broker-b"] if cluster == "large" else ["broker-a"]
    groups = []
    for name in names:
        lost = name == "broker-b"
        groups.append(
            {
                "name": name,
                "kind": "ledger",
                "state": "warning" if lost else "ok",
                "leader": "n0",
                "term": 17,
                "members": [member(name, i, lost and i == 2) for i in range(3)],
                "durability": {
                    "code": "majority_synced",
                    "text": "",
                    "flush": "SYNC_FLUSH",
                    "members": 3,
                    "majority": 2,
                    "complete": 2 if lost else 3,
                    "may_lose": 0 if lost else 1,
                },
                "timeline": [event(*e[:4], **e[4]) for e in EVENTS if e[3].startswith(name)],
            }
        )
    return {"broker_groups": groups, "answers": answers(len(names) * 3, len(names) - 1)}


def history(cluster: str, query: dict[str, str]) -> dict[str, Any]:
    span = int(query.get("span_s", 3600))
    moments = [now_ms() - (span - s) * 1000 for s in range(0, span + 1, 10)]
    busy = 1 if cluster == "large" else 0

    def series(name: str, unit: str, scale: float, i: int, owner: str = "") -> dict[str, Any]:
        values = [
            round(
                busy
                * scale
                * (
                    1.3
                    + 0.4 * math.sin(ms / 400_000 + i)
                    + 0.06 * math.sin(ms / 9000 + i)
                    + 0.05 * math.sin(ms / 37_000 + i)
                ),
                2,
            )
            for ms in moments
        ]
        return {"name": name, "member": owner, "unit": unit, "at_ms": moments, "values": values}

    every = [
        series("in_per_s", "1/s", 9000, 0),
        series("out_per_s", "1/s", 9500, 1),
        series("in_bytes_per_s", "B/s", 9e6, 0),
        series("lag_messages", "1", 2e6, 4),
        series("put_p99_ms", "ms", 4, 2),
    ]
    names = query.get("series", "")
    for i in range(3 if names else 0):
        every.append(series("answer_ms", "ms", 2 + i, i, f"broker-a/n{i}"))
        every.append(series("behind_bytes", "B", i * 4000, i, f"broker-a/n{i}"))
    if names:
        every.append(series("put_p99_ms", "ms", 4, 2, "broker-a/n0"))
    every = [one for one in every if not names or one["name"] in names]
    return {"series": every, "step_s": 10.0, "longer": ""}
