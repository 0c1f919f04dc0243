"""Canned answers about one topic, one consumer group and clients."""

from typing import Any

from tests.console.canned_cluster import answers, event, group_name, now_ms, page, topic_name


def clients(groups: int, query: dict[str, str]) -> Any:
    rows = [
        {
            "client_id": f"10.0.4.{i % 250}@{4000 + i}",
            "address": f"10.0.4.{i % 250}:5{i % 9999:04d}",
            "language": ("JAVA", "PYTHON", "GO", "CPP")[i % 4],
            "version": "V4_7_1" if i % 11 == 0 else "V4_9_3",
            "outdated": i % 11 == 0,
            "kinds": ["consumer"] if i % 3 else ["consumer", "producer"],
            "groups": [group_name(i)],
        }
        for i in range(min(groups, 400))
    ]
    more = {
        "groups_asked": groups * 3 // 4,
        "groups": groups,
        "producers_told": True,
        "age_s": 4.0,
    }
    return page(query, rows, "client_id") | more


def topic(name: str) -> Any:
    config = [
        {
            "broker": b,
            "read_queues": 8,
            "write_queues": 8,
            "perm": 6,
            "order": False,
            "filter_type": "SINGLE_TAG",
            "sys_flag": 0,
        }
        for b in ("broker-a", "broker-b")
    ]
    route = [
        {
            "broker": b,
            "read_queues": 8,
            "write_queues": 8,
            "perm": 6,
            "addresses": {"0": f"10.0.{n}.1:10911", "1": f"10.0.{n}.2:10911"},
        }
        for n, b in enumerate(("broker-a", "broker-b"))
    ]
    return {
        "topic": name,
        "kind": "normal",
        "config": config,
        "differs": False,
        "route": route,
        "in_per_s": 812.5,
        "in_bytes_per_s": 811_000.0,
        "in_today": 18_211_004,
        "messages": 1_512_903,
        "last_write_ms": now_ms() - 400,
        "order_conf": None,
        "answers": answers(),
    }


def lag_history() -> Any:
    """An hour in which the group fell behind and is catching up."""
    moments = [now_ms() - (60 - minute) * 60_000 for minute in range(61)]
    rise = [minute / 35 if minute < 35 else (80 - minute) / 45 for minute in range(61)]
    lags = [0.0 if minute < 4 else round(88_000 * rise[minute]) for minute in range(61)]
    series = [
        {"name": name, "member": "", "unit": unit, "at_ms": moments, "values": values}
        for name, unit, values in (
            ("lag_messages", "1", lags),
            ("lag_ms", "ms", [round(lag * 1.4) for lag in lags]),
        )
    ]
    return {"series": series, "step_s": 10.0, "longer": ""}


def group(name: str, more: list[str], query: dict[str, str]) -> Any:
    if more == ["history"]:
        return lag_history()
    if more == ["queues"]:
        rows = [
            {
                "topic": topic_name(16),
                "broker": b,
                "queue": q,
                "max_offset": 91_000 + q,
                "committed": 90_000,
                "lag_messages": 1000 + q * 500,
                "lag_ms": 8000 + q * 7000,
                "in_flight": None,
                "owner": f"10.0.4.{q}@4001" if query.get("owners") else None,
            }
            for b in ("broker-a", "broker-b")
            for q in range(8)
        ]
        return page(query, rows, "topic")
    if more == ["clients"]:
        rows = [
            {
                "client_id": f"10.0.4.{i}@4001",
                "address": f"10.0.4.{i}:52110",
                "language": "JAVA",
                "version": "V4_9_3",
                "brokers": ["broker-a", "broker-b"],
            }
            for i in range(4)
        ]
        return {"rows": rows, "total": 4, "answers": answers()}
    if more:
        return running(more[1], query)
    return {
        "group": name,
        "state": "stuck",
        "state_text": "nothing moves",
        "differs": False,
        "online": 4,
        "config": [
            {
                "broker": "broker-a",
                "consume_enabled": True,
                "from_min_enabled": False,
                "broadcast_enabled": True,
                "retry_queues": 1,
                "retry_max": 16,
                "notify_members": True,
            }
        ],
        "mode": "push",
        "model": "clustering",
        "from_where": "CONSUME_FROM_LAST_OFFSET",
        "subscriptions": [{"topic": topic_name(16), "kind": "TAG", "expression": "paid || <b>"}],
        "lag_messages": 44_000,
        "lag_ms": 341_000,
        "out_per_s": 0.0,
        "retry_messages": 31,
        "dead_letters": 1000,
        "timeline": [
            event(61, "group_joined", "info", name),
            event(3000, "group_left", "info", name),
        ],
        "answers": answers(),
    }


def running(client: str, query: dict[str, str]) -> Any:
    stack = "\n".join(f"  at com.example.Pay.step{i}(Pay.java:{i})" for i in range(40))
    return {
        "client_id": client,
        "properties": {"PROP_THREADPOOL_CORE_SIZE": "20", "PROP_CONSUMEORDERLY": "false"},
        "queues": [
            {
                "topic": topic_name(16),
                "broker": "broker-a",
                "queue": q,
                "committed": 90_000,
                "cached": 512,
                "cached_mib": 3,
                "locked": False,
                "dropped": False,
                "last_pull_ms": now_ms() - 900,
                "last_consume_ms": now_ms() - 340_000,
            }
            for q in range(4)
        ],
        "topics": [
            {
                "topic": topic_name(16),
                "consume_ms": 812.0,
                "ok_per_s": 0.0,
                "failed_per_s": 1.2,
                "failed_last_hour": 4211,
            }
        ],
        "stacks": f"TID: 41 STATE: BLOCKED\n{stack}" if query.get("stacks") else None,
        "stacks_cut": False,
    }
