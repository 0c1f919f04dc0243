"""Canned answers in the shapes of the console's API, for what no real cluster shows soon.

Three clusters to choose from: without anything, with one of each, and with 1,000 topics and 2,300
consumer groups. Names and bodies among them are hostile. `python -m tests.console.canned PORT`
serves the page and these answers on loopback until its standard input closes.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ledgermq.console.server import PAGE_SCRIPT, STATIC
from ledgermq.http.replies import RequestError
from ledgermq.http.requests import Request
from ledgermq.http.static_files import StaticFiles
from tests.console.canned_cluster import (
    SIZES,
    answers,
    broker_groups,
    group_name,
    group_row,
    history,
    now_ms,
    overview,
    page,
    topic_name,
    topic_row,
    wave,
)
from tests.console.canned_groups import clients, group, topic
from tests.console.canned_messages import access, admin, message, message_row, trace

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)
LETTER_STATES = ["waiting"] * 4 + ["resent", "dropped", "unknown"]


class Canned:
    """What there is to say, and what was asked: the searches and changes under way."""

    def __init__(self) -> None:
        self.searches: dict[str, float] = {}
        self.actions: dict[str, dict[str, Any]] = {}
        self.begun: dict[str, float] = {}

    def answer(self, method: str, path: list[str], query: dict[str, str], body: Any) -> Any:
        if path == ["session"]:
            return self.session()
        if path == ["clusters"]:
            rows = [
                {
                    "id": c,
                    "name": c.title(),
                    "name_servers": ["127.0.0.1:9876"],
                    "broker_groups": 2,
                    "brokers": 6,
                }
                for c in SIZES
            ]
            return {"clusters": rows, "answers": answers()}
        cluster, *rest = path[1:]
        return self.about(method, cluster, rest, query, body)

    def session(self) -> dict[str, Any]:
        return {
            "signed_in": False,
            "sign_in_needed": False,
            "account": None,
            "role": "open",
            "may_change": True,
            "csrf_token": "t",
            "idle_s": None,
            "ends_ms": None,
            "version": "0.9.0",
        }

    def about(
        self, method: str, cluster: str, path: list[str], query: dict[str, str], body: Any
    ) -> Any:
        topics, groups = SIZES[cluster]
        match path:
            case ["overview"]:
                return overview(cluster)
            case ["broker-groups"]:
                return broker_groups(cluster)
            case ["history"]:
                return history(cluster, query)
            case ["topics"]:
                rows = [topic_row(i) for i in range(topics)]
                kinds = set(filter(None, query.get("kinds", "").split(",")))
                rows = [r for r in rows if not kinds or r["kind"] in kinds]
                return page(query, rows, "topic") | {"kinds": {"normal": topics}}
            case ["consumer-groups"]:
                rows = [group_row(i) for i in range(groups)]
                rows = [r for r in rows if query.get("state", "") in ("", r["state"])]
                return page(query, rows, "group") | {
                    "age_s": 12.0 if "lag" in query.get("sort", "") else None
                }
            case ["clients"]:
                return clients(groups, query)
            case ["topics", name]:
                return topic(name)
            case ["topics", _, "queues"]:
                rows = [
                    {
                        "broker": b,
                        "queue": q,
                        "min_offset": 1000 * q,
                        "max_offset": 90_000 + q * q * 700,
                        "messages": 90_000 + q * q * 700 - 1000 * q,
                        "oldest_ms": now_ms() - 250_000_000,
                        "last_write_ms": now_ms() - q * 900,
                    }
                    for b in ("broker-a", "broker-b")
                    for q in range(8)
                ]
                return {"rows": rows, "total": len(rows), "skew": 1.8, "answers": answers()}
            case ["topics", _, "groups"]:
                rows = [
                    {
                        "group": group_name(i),
                        "lag_messages": i * 1000,
                        "lag_ms": i * 900,
                        "out_per_s": wave(i, 9),
                    }
                    for i in range(5, 9)
                ]
                return page(query, rows, "group")
            case ["topics", name, "tail"]:
                at = int(body["cursor"] or 0)
                rows = [message_row(i, name) for i in range(at * 3, at * 3 + 3)] if at else []
                told = {"rows": rows[::-1], "cursor": str(at + 1), "passed": 40 * (at == 2)}
                return told | {"read_bytes": 150 * len(rows), "answers": answers()}
            case ["topics", name, "messages", _, _, offset]:
                return message(name, int(offset))
            case ["consumer-groups", name, *more]:
                return group(name, more, query)
            case _:
                return self.rest(method, cluster, path, query, body)

    def rest(
        self, method: str, cluster: str, path: list[str], query: dict[str, str], body: Any
    ) -> Any:
        full = SIZES[cluster][0] > 0
        match path:
            case ["dead-letters"]:
                rows = [
                    {
                        "group": group_name(i),
                        "topic": f"%DLQ%{group_name(i)}",
                        "readable": i % 4 > 0,
                        "messages": 1000 - i * 40,
                        "oldest_ms": now_ms() - 9_000_000,
                        "newest_ms": now_ms() - i * 60_000,
                    }
                    for i in range(20 if full else 0)
                ]
                return page(query, rows, "group") | {"messages": sum(r["messages"] for r in rows)}
            case [*_, "messages"]:
                at = int(query.get("cursor") or 0)
                limit = int(query.get("limit", 50))
                total = 1000 if full else 0
                rows = [
                    message_row(i, f"%DLQ%{path[1]}", True) | {"state": LETTER_STATES[i % 7]}
                    for i in range(at, min(total, at + limit))
                ]
                after = str(at + limit) if at + limit < total else None
                told = {"rows": rows, "total": total, "next": after, "answers": answers()}
                return told | ({"waiting_max": total * 4 // 7} if path[0] == "dead-letters" else {})
            case ["definitions"]:
                return {"topics": [], "groups": []}
            case ["delayed"]:
                spans = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".split()
                units = {"s": 1000, "m": 60_000, "h": 3_600_000}
                levels = [
                    {
                        "level": i,
                        "delay": s,
                        "delay_ms": int(s[:-1]) * units[s[-1]],
                        "waiting": i * 113 % 40 * full,
                        "delivered": i * 9001 * full,
                    }
                    for i, s in enumerate(spans, 1)
                ]
                half = {"waiting": 12 * full, "oldest_ms": now_ms() - 95_000 if full else None}
                return {"levels": levels, "half": half, "answers": answers()}
            case ["traces", _]:
                return trace(path[1])
            case ["access"]:
                return access(cluster)
            case ["access", "may"]:
                return {
                    "allowed": body["what"] == "SUB",
                    "because": f"rule {body['name']}=SUB of {body['access_key']}",
                }
            case ["searches", *_]:
                return self.search(method, path[1:], query, body)
            case ["actions", *_]:
                return self.action(method, path[1:], body)
            case _:
                return admin(path, query)

    def search(self, method: str, path: list[str], query: dict[str, str], body: Any) -> Any:
        name = path[0] if path else str(len(self.searches) + 1)
        self.searches.setdefault(name, time.time())
        share = min(1.0, (time.time() - self.searches[name]) / 2)
        state = "stopped" if method == "DELETE" else "done" if share >= 1 else "running"
        found = int(share * 60)
        rows = [message_row(i, topic_name(16)) for i in range(found)][int(query.get("after", 0)) :]
        return {
            "id": name,
            "state": state,
            "reason": "",
            "scanned": int(share * 1_200_000),
            "total": 1_200_000,
            "found": found,
            "took_ms": int(share * 270_000),
            "rows": rows,
            "answers": answers(),
        }

    def action(self, method: str, path: list[str], body: Any) -> Any:
        if method == "GET" and not path:
            rows = [
                {
                    "id": "9",
                    "kind": "reset_offset",
                    "summary": "reset billing to 2026-11-23 10:00",
                    "state": "done",
                    "account": "operator",
                    "begun_ms": now_ms() - 600_000,
                    "ended_ms": now_ms() - 599_000,
                    "counts": {"done": 15, "failed": 1},
                }
            ]
            return {"rows": rows}
        if not path:
            name = str(len(self.actions) + 1)
            self.actions[name] = body
        else:
            name = path[0]
            if method == "POST":
                self.begun.setdefault(name, time.time())
        return self.progress(name)

    def progress(self, name: str) -> Any:
        wanted = self.actions[name]
        total = 1000 if wanted["kind"].endswith("_dead_letters") else 16
        begun = self.begun.get(name)
        past = 0 if begun is None else min(total, int((time.time() - begun) * 600))
        items = []
        for i in range(total):
            state = (
                "will"
                if begun is None
                else "waiting"
                if i >= past
                else "failed"
                if i == 7
                else "done"
            )
            items.append(
                {
                    "target": f"broker-a {i % 8} {i}",
                    "before": str(90_000 + i),
                    "after": str(80_000 + i),
                    "state": state,
                    "reason": "the broker refused: topic is read only" if state == "failed" else "",
                }
            )
        counts: dict[str, int] = {}
        for item in items:
            counts[item["state"]] = counts.get(item["state"], 0) + 1
        over = begun is not None and past == total
        return {
            "id": name,
            "kind": wanted["kind"],
            "summary": f"{wanted['kind']}: {total} items",
            "state": "preview" if begun is None else "done" if over else "running",
            "warnings": ["2 members of the group are online"]
            if wanted["kind"] == "reset_offset"
            else [],
            "token": "" if begun else "token",
            "expires_ms": now_ms() + 600_000,
            "account": "",
            "begun_ms": begun and int(begun * 1000),
            "ended_ms": now_ms() if over else None,
            "counts": counts,
            "items": items[:500],
            "total": total,
        }


def make_view(canned: Canned) -> type[BaseHTTPRequestHandler]:
    """The server's class for requests, around what there is to say."""
    # As the console serves them: joined, without comments.
    files = StaticFiles(STATIC, PAGE_SCRIPT)

    class View(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def take(self) -> None:
            url = urlsplit(self.path)
            if url.path.startswith("/api/v1/"):
                path = [unquote(part) for part in url.path.removeprefix("/api/v1/").split("/")]
                query = {k: v[0] for k, v in parse_qs(url.query).items()}
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                if path[-1] == "events":
                    return self.stream(path[1], query)
                value = canned.answer(self.command, path, query, body)
                if value is None:
                    return self.give(
                        404, "application/json", b'{"error":{"code":"not_found","message":"no"}}'
                    )
                return self.give(200, "application/json", json.dumps(value).encode())
            try:
                reply = files.find(url.path.lstrip("/") or "index.html", Request())
            except RequestError:
                return self.give(404, "text/plain", b"no such file")
            assert isinstance(reply.body, bytes)
            return self.give(200, reply.content_type, reply.body)

        def give(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def stream(self, cluster: str, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            makers: dict[str, Callable[[], Any]] = {
                "overview": lambda: overview(cluster),
                "broker_groups": lambda: broker_groups(cluster),
                "history": lambda: history(cluster, {"span_s": "30"}),
            }
            try:
                while True:
                    for part in query.get("parts", "").split(","):
                        if part in makers:
                            data = json.dumps(makers[part]())
                            self.wfile.write(f"event: {part}\ndata: {data}\n\n".encode())
                    self.wfile.flush()
                    # What ends with the process, and waits a second until then.
                    threading.Event().wait(1)
            except OSError:
                pass

        do_GET = do_POST = do_DELETE = take

    return View


def main() -> None:
    """Serves until standard input closes; prints the address."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = ThreadingHTTPServer(("127.0.0.1", port), make_view(Canned()))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}/\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
