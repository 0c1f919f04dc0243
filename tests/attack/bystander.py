"""A well-behaved client beside an attack, in its own process: one message, its answer, a pause.

`python -m tests.attack.bystander WAY` asks until its standard input ends, and prints what became of
it as JSON. WAY is a `Way` as JSON: usually messages are sent whose bodies are numbers.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from ledgermq.client import load_client_tls
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials
from tests.e2e.wire_client import WireClient

_ROOT: Final = Path(__file__).resolve().parents[2]
_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 300.0
_BODY_BYTES: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Way:
    """What a bystander asks, and whom."""

    address: str
    # Processes whose waiting for a processor does not count in `Seen.free_ms`.
    pids: tuple[int, ...]
    # "send": a message to the topic; "route": where it is, of a name server; "page": a page of an
    # HTTP port, on a new connection, as probes ask.
    kind: str = "send"
    topic: str = ""
    page: str = "/livez"
    # Number of the first message.
    first: int = 0
    # A tls.properties and the keys of an account; empty without TLS and accounts.
    tls_file: str = ""
    keys_file: str = ""


@dataclass(frozen=True)
class Seen:
    """What a bystander saw of a broker."""

    # Milliseconds of each send, in order.
    waits_ms: list[float]
    # The same without what threads of this process and the broker's stood in line for a processor:
    # as on a machine that has nothing else to do, or shorter where several stood at once.
    free_ms: list[float]
    # Numbers of messages that were acknowledged, and how many were refused.
    acknowledged: list[int]
    refused_count: int

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.waits_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")

    @property
    def free_p99_ms(self) -> float:
        """That of a free machine."""
        ordered = sorted(self.free_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")

    @property
    def slowest_ms(self) -> float:
        return max(self.waits_ms, default=float("inf"))


class Bystander:
    """The process, from the beginning to the end of a `with` block."""

    def __init__(self, way: Way) -> None:
        """Starts it."""
        words = [sys.executable, "-m", "tests.attack.bystander", json.dumps(asdict(way))]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )
        self._seen: Seen | None = None
        assert self._process.stdout is not None
        # Its first message is answered.
        assert self._process.stdout.readline() == "begun\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        out, _ = self._process.communicate(timeout=_PATIENCE_S)
        self._seen = Seen(**json.loads(out))

    @property
    def seen(self) -> Seen:
        """What it saw, after the block."""
        assert self._seen is not None
        return self._seen


def _stood_s(pid: int) -> float:
    """Returns how long the threads of a process have stood in line for a processor, together: one
    of them may have the interpreter, and the others wait for it.
    """
    # Time on a processor, time in line, turns; in nanoseconds.
    stood_ns = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # It may have ended meanwhile.
        with suppress(OSError):
            stood_ns += int(thread.read_bytes().split()[1])
    return stood_ns / 1e9


def credentials(keys_file: Path | str) -> Credentials:
    """Reads an account as tools have it."""
    keys = yaml.safe_load(Path(keys_file).read_text())
    return Credentials(access_key=keys["accessKey"], secret_key=keys["secretKey"])


@contextmanager
def _asking(way: Way) -> Iterator[Callable[[int], bool]]:
    """Gives what asks once, with the number of the question, and tells whether that was done."""
    if way.kind == "page":
        host, _, port = way.address.rpartition(":")

        def page(number: int) -> bool:
            # Whoever looks for health connects anew each time.
            plain = http.client.HTTPConnection(host, int(port), timeout=_PATIENCE_S)
            plain.request("GET", way.page)
            status = plain.getresponse().status
            plain.close()
            return status == 200

        yield page
        return
    who = credentials(way.keys_file) if way.keys_file else None
    tls = load_client_tls(way.tls_file) if way.tls_file else None
    with WireClient(way.address, _PATIENCE_S, who=who, tls=tls) as client:
        if way.kind == "route":
            code, fields = RequestCode.GET_ROUTEINFO_BY_TOPIC.value, {"topic": way.topic}
            yield lambda number: client.ask(code, fields).code == 0
        else:
            yield (
                lambda number: (
                    client.send(way.topic, 0, str(number).encode().ljust(_BODY_BYTES)).code == 0
                )
            )


def _ask_until_told(way: Way) -> Seen:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    waits_ms: list[float] = []
    free_ms: list[float] = []
    pids = (os.getpid(), *way.pids)
    acknowledged: list[int] = []
    number = way.first
    with _asking(way) as ask:
        while not ended.is_set():
            stood_s = sum(map(_stood_s, pids))
            begun_s = time.perf_counter()
            is_done = ask(number)
            waits_ms.append((time.perf_counter() - begun_s) * 1000)
            stood_s = sum(map(_stood_s, pids)) - stood_s
            free_ms.append(max(waits_ms[-1] - stood_s * 1000, 0.0))
            if is_done:
                acknowledged.append(number)
            if number == way.first:
                sys.stdout.write("begun\n")
                sys.stdout.flush()
            number += 1
            ended.wait(_PAUSE_S)
    return Seen(waits_ms, free_ms, acknowledged, number - way.first - len(acknowledged))


if __name__ == "__main__":
    told = Way(**json.loads(sys.argv[1]))
    seen = _ask_until_told(replace(told, pids=tuple(told.pids)))
    sys.stdout.write(json.dumps(vars(seen)))
