"""Canned messages, traces, accounts, settings and logs."""

import json
from typing import Any

from tests.console.canned_cluster import (
    HOSTILE,
    IS_HOSTILE,
    answers,
    group_name,
    now_ms,
    topic_name,
)

SETTINGS = "sendThreads pullThreads messageDelay indexSlots queueFlush retryLimit".split()


def message_row(i: int, topic: str, dead: bool = False) -> dict[str, Any]:
    body = json.dumps({"order": i, "amount": i * 1.5, "note": "<b>gift</b>"})
    return {
        "topic": topic,
        "broker": "broker-a",
        "queue": i % 8,
        "offset": i,
        "message_id": f"7F0000010001{i:020X}",
        "offset_id": f"0A00000100002A9F{i:016X}",
        "keys": f"order-{i}",
        "tags": "paid" if i % 3 else HOSTILE[0] if IS_HOSTILE else "open",
        "stored_ms": now_ms() - i * 5000,
        "born_ms": now_ms() - i * 5000 - 3,
        "body_bytes": len(body),
        "preview": HOSTILE[2] if IS_HOSTILE and i == 1 else body,
        "reconsume_times": 16 if dead else 0,
        "origin_topic": "orders-eu-0016" if dead else None,
        "origin_id": f"7F0000010002{i:020X}" if dead else None,
    }


def body_of(i: int) -> dict[str, Any]:
    broken = {"kind": "broken", "reason": "zlib: incorrect header check", "text": None}
    known: dict[int, dict[str, Any]] = {
        2: {"kind": "binary", "text": None, "hex": bytes(range(256)).hex() * 16, "encoding": ""},
        3: {"kind": "text", "text": "<script>alert(1)</script>\u0000\u0007\u202e" * 20_000},
        4: {"kind": "empty", "text": None, "hex": "", "bytes": 0, "stored_bytes": 0},
        5: broken | {"hex": "00ff10", "compression": "zlib"},
    }
    text = json.dumps(
        {
            "order": i,
            "amount": 18.5,
            "paid": True,
            "customer": None,
            "note": "<b>gift</b>",
            "lines": [{"article": f"A-{n}", "count": n} for n in range(1, 6)],
        },
        indent=2,
    )
    body = {
        "kind": "json",
        "encoding": "utf-8",
        "compression": "",
        "stored_bytes": len(text),
        "bytes": len(text),
        "text": text,
        "hex": text.encode().hex()[:8192],
        "text_cut": False,
        "hex_cut": False,
        "reason": "",
    }
    body |= known.get(i, {})
    if i == 3:
        body |= {"bytes": 4 * 2**20, "stored_bytes": 4 * 2**20, "text_cut": True, "hex_cut": True}
    return body


def message(topic: str, i: int) -> dict[str, Any]:
    row = message_row(i, topic)
    places = [
        {"group": group_name(n), "state": state, "committed": i}
        for n, state in enumerate(
            ("consumed", "waiting", "filtered", "offline", "unknown"), start=5
        )
    ]
    return {
        "row": row,
        "properties": {
            "KEYS": row["keys"],
            "TAGS": row["tags"],
            "UNIQ_KEY": row["message_id"],
            "<b>own</b>" if IS_HOSTILE else "colour": HOSTILE[1] if IS_HOSTILE else "blue",
            "long": "x" * 5000,
        },
        "properties_readable": i != 3,
        "body": body_of(i),
        "physical_offset": 4711 * i,
        "record_bytes": 411,
        "flag": 0,
        "sys_flag": 0,
        "transaction": "not",
        "delay_level": 0,
        "deliver_ms": None,
        "born_host": "10.0.4.17:52110",
        "store_host": "10.0.0.1:10911",
        "groups": places,
        "groups_total": 5,
        "answers": answers(),
    }


def trace(name: str) -> Any:
    at = now_ms() - 90_000
    steps = [
        ("sent", "orders-producer", 0, 4, "success", None),
        ("stored", "", 3, None, "success", None),
        ("delivered", "billing", 9, 110, "failed", 0),
        ("delivered", "mail", 10, 35, "success", 0),
        ("delivered", "billing", 10_200, 80, "success", 1),
    ]
    return {
        "message_id": name,
        "message": message_row(7, topic_name(16)),
        "steps": [
            {
                "kind": k,
                "group": g,
                "client": "10.0.4.1@4001",
                "at_ms": at + d,
                "cost_ms": c,
                "status": s,
                "retries": r,
            }
            for k, g, d, c, s, r in steps
        ],
        "answers": answers(),
    }


def access(cluster: str) -> Any:
    def account(key: str, admin: bool, rules: list[str], differs: bool = False) -> dict[str, Any]:
        return {
            "access_key": key,
            "is_admin": admin,
            "addresses": "10.0.*.*",
            "default_topic": "DENY",
            "default_group": "SUB",
            "topics": rules,
            "groups": ["billing=SUB"],
            "differs": differs,
        }

    some = [
        account("operator", True, []),
        account("shop", False, ["orders-eu-0016=PUB|SUB", "prices-us-0017=SUB"]),
        account(HOSTILE[0] if IS_HOSTILE else "billing", False, ["x=DENY"], True),
    ]
    full = cluster == "large"
    return {
        "enabled": full,
        "reason": "" if full else "aclEnable is not set",
        "accounts": some if full else [],
        "open_addresses": ["10.0.9.9"] if full else [],
        "versions": {"n0": "7"},
        "answers": answers(),
    }


def admin(path: list[str], query: dict[str, str]) -> Any:
    match path:
        case ["configuration"]:
            keys = [("fileReservedTime", "72", False), ("flushDiskType", "SYNC_FLUSH", False)]
            keys += [
                (f"{name}{i:02d}", str(i * 100), i == 3) for name in SETTINGS for i in range(12)
            ]
            settings = [
                {
                    "key": k,
                    "values": [
                        {"member": f"n{i}", "value": v if not d or i else "1"} for i in range(3)
                    ],
                    "differs": d,
                    "changeable": k == "fileReservedTime",
                }
                for k, v, d in keys
            ]
            settings = [s for s in settings if s["differs"] or not query.get("differs")]
            return {
                "members": ["n0", "n1", "n2"],
                "settings": settings,
                "total": len(settings),
                "answers": answers(),
            }
        case ["log"]:
            lines = [
                {
                    "node": f"n{i % 3}",
                    "time": f"2026-11-23T10:{i // 60 % 60:02d}:{i % 60:02d}+0000",
                    "level": ("info", "info", "warn", "error")[i % 4 if i % 9 == 0 else 0],
                    "text": f"ledger: entry {i} committed "
                    + (HOSTILE[i % 6] if IS_HOSTILE and i % 50 == 0 else ""),
                }
                for i in range(2000)
            ]
            return {"available": True, "nodes": ["n0", "n1", "n2"], "lines": lines}
        case ["audit"]:
            entries = [
                {
                    "at_ms": now_ms() - i * 61_000,
                    "account": "operator",
                    "address": "127.0.0.1",
                    "cluster": "large",
                    "action": ("reset_offset", "sign_in", "view_message")[i % 3],
                    "object": group_name(i + 6),
                    "outcome": ("done", "done", "refused")[i % 3],
                    "detail": "16 queues",
                    "action_id": "",
                }
                for i in range(400)
            ]
            at = int(query.get("offset", 0))
            return {"entries": entries[at : at + 200], "total": 400}
    return None
