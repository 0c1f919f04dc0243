"""A registry of schemas on a port of this machine, with the part of Confluent's REST API that its
clients for reading use: real requests over real sockets, and faults on demand.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class Version:
    """One schema of a subject."""

    id: int
    kind: str
    text: str
    references: list[dict[str, Any]]


@dataclass(slots=True)
class SchemaRegistry:
    """What is registered, what was asked for, and how the next requests are answered."""

    url: str = ""
    subjects: dict[str, list[Version]] = field(default_factory=dict)
    # Paths without their queries, in order.
    asked: list[str] = field(default_factory=list)
    # name:password that a request must have; "": none.
    account: str = ""
    # Status codes of the next answers, each once.
    failures: list[int] = field(default_factory=list)
    # An answer to everything, instead of a true one.
    body: bytes | None = None
    # Answers come byte by byte, one in so many seconds; None: at once.
    pause_s: float | None = None
    # Ends such answers.
    closing: threading.Event = field(default_factory=threading.Event)

    def register(
        self,
        subject: str,
        schema: object,
        kind: str = "AVRO",
        references: Sequence[dict[str, Any]] = (),
    ) -> int:
        """Registers a schema and returns its id.

        Args:
            subject: its subject, of which it is the latest from now on.
            schema: a document of JSON, or a serialized FileDescriptorProto.
            kind: as `schemaType` has it.
            references: name, subject and version of each.
        """
        text = (
            base64.b64encode(schema).decode() if isinstance(schema, bytes) else json.dumps(schema)
        )
        number = 1 + sum(map(len, self.subjects.values()))
        version = Version(number, kind, text, list(references))
        self.subjects.setdefault(subject, []).append(version)
        return number

    def find(self, path: str) -> dict[str, Any] | None:
        """The answer to a path; None when there is none."""
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        found: Version | None = None
        match parts:
            case ["schemas", "ids", number]:
                all_of = [one for versions in self.subjects.values() for one in versions]
                found = next((one for one in all_of if str(one.id) == number), None)
                answer: dict[str, Any] = {}
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject, [])
                place = len(versions) if version == "latest" else int(version)
                found = versions[place - 1] if 0 < place <= len(versions) else None
                answer = {"subject": subject, "version": place, "id": found.id if found else 0}
        if found is None:
            return None
        answer["schema"] = found.text
        if found.kind != "AVRO":
            answer["schemaType"] = found.kind
        if found.references:
            answer["references"] = found.references
        return answer


@contextlib.contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    """Serves a registry until the block ends."""
    registry = SchemaRegistry()

    class Answers(BaseHTTPRequestHandler):
        """One connection."""

        def do_GET(self) -> None:
            """Answers a request."""
            path, _, query = self.path.partition("?")
            registry.asked.append(path)
            given = self.headers.get("Authorization", "")
            wanted = "Basic " + base64.b64encode(registry.account.encode()).decode()
            if registry.account and given != wanted:
                return self._answer(401, b'{"error_code":401,"message":"Unauthorized"}')
            if registry.failures:
                status = registry.failures.pop(0)
                return self._answer(status, b"{}", {"Location": f"{registry.url}/elsewhere"})
            if registry.body is not None:
                return self._answer(200, registry.body)
            found = registry.find(path)
            if found is None:
                return self._answer(404, b'{"error_code":40403,"message":"Schema not found"}')
            assert "format=serialized" in query
            self._answer(200, json.dumps(found).encode())

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                if registry.pause_s is None:
                    self.wfile.write(body)
                    return
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    if registry.closing.wait(registry.pause_s):
                        return

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        registry.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
