"""The broker that is flooded, and what a flood does to it and to a client beside."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ledgermq.protocol.codes import RequestCode
from tests.attack.bystander import Bystander, Seen, Way
from tests.certificate_files import write_tls_file
from tests.e2e.wire_client import WireClient, pull_fields, request
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram
from tests.waiting import wait_until

# Sends wait for no disk: what is measured is the processor's time.
_SETTINGS: Final = (
    "flushDiskType=ASYNC_FLUSH",
    "enablePropertyFilter=true",
    "maxConnectionsPerAddress=5000",
    "maxNewConnectionsPerAddress=5000",
    "receiveBudgetBytes=67108864",
    "tls.server.mode=permissive",
)
TOPIC: Final = "bystander"
_SAMPLE_S: Final = 0.05
# Memory counts as returned when so little more is used than before, in MB.
SPARE_MB: Final = 40.0
_RETURN_S: Final = 60.0
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


class Target(Protocol):
    """What a flood needs to know of whom it floods.

    Attributes:
        address: where it listens.
        tls: what a client connects with; None: in plain.
    """

    address: str
    tls: ssl.SSLContext | None

    def connect(self, *, is_admin: bool = False) -> WireClient:
        """Opens a connection that asks and is answered; `is_admin`: to make what is needed."""

    def open(self) -> socket.socket:
        """Opens a connection for bytes."""

    def request(
        self,
        code: int,
        fields: dict[str, Any],
        body: bytes = b"",
        *,
        opaque: int = 1,
        flag: int = 0,
    ) -> bytes:
        """Returns the bytes of a request, as the one who floods may ask it."""


Flood = Callable[[Target], None]


@dataclass(frozen=True)
class Effect:
    """What one flood did."""

    seen: Seen
    seconds: float
    # Of the victim: processor time, and memory before, at its greatest, and afterwards.
    cpu_s: float
    before_mb: float
    peak_mb: float
    after_mb: float
    # Until the memory was back, None: it was not in a minute.
    returned_s: float | None
    # Of a timed victim: processor milliseconds of each turn of its reactor.
    turns_ms: list[float]

    @property
    def turn_ms(self) -> float:
        """What turns last that are not rare: those that are longer take a twentieth of all time
        together. The two longest do not count: a collection, files that are made.
        """
        turns_ms = sorted(self.turns_ms, reverse=True)[2:]
        longer_ms = sum(turns_ms) / 20
        for turn_ms in turns_ms:
            longer_ms -= turn_ms
            if longer_ms < 0:
                return turn_ms
        return 0.0


def cpu_s_of(pid: int) -> float:
    """Processor time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS_S


class Victim:
    """A broker that is alone in its group."""

    # It takes TLS, and asks nobody for it.
    tls: ssl.SSLContext | None = None

    def __init__(
        self, folder: Path, *settings: str, tree: Path | None = None, has_shares: bool = True
    ) -> None:
        """Starts it.

        Args:
            folder: for its store and its log.
            settings: besides those that all floods need.
            tree: a checkout whose broker is to be flooded; None: this one's, timed.
            has_shares: False: a mistake is planted, nobody bounds what a turn is used for.
        """
        port, ledger_port = free_ports(2, spread=(0, -2))
        tls_file = write_tls_file(folder / "tls.properties")
        words = [
            "broker", "--json", f"listenPort={port}", "brokerIP1=127.0.0.1", "brokerName=victim",
            f"storePathRootDir={folder / 'store'}", "enableDLegerCommitLog=true",
            "dLegerGroup=victim", f"dLegerPeers=n0-127.0.0.1:{ledger_port}", "dLegerSelfId=n0",
            f"tls.config.file={tls_file}", *SMALL_STORE, *_SETTINGS, *settings,
        ]  # fmt: skip
        log = folder / "victim.log"
        # None: it is not timed.
        self._turns = folder / "turns" if tree is None else None
        if tree is not None:
            environment = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
            self.program = LiveProgram(words, log, environment)
        else:
            timed = (sys.executable, "-m", "tests.attack.timed_victim", str(self._turns))
            self.program = LiveProgram(
                words, log, command=timed if has_shares else (*timed, "--without-shares")
            )
        self._sent_count = 0
        self._acknowledged: set[int] = set()

    def wait_until_serving(self) -> None:
        """Waits until it takes messages."""
        self.program.wait_until_serving()
        with self.connect() as client:
            assert client.send(TOPIC, 0, b"first").code == 0
            # The language of conditions is loaded with the first of them.
            sql = pull_fields(TOPIC, 0, 1, subscription="a = 1", expressionType="SQL92")
            client.ask(RequestCode.PULL_MESSAGE, sql)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.program.address

    def connect(self, *, is_admin: bool = False) -> WireClient:
        """Opens a connection; everybody is an admin."""
        return WireClient(self.program.address, timeout_s=120)

    def open(self) -> socket.socket:
        """Opens a connection for bytes."""
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=30)

    def request(
        self,
        code: int,
        fields: dict[str, Any],
        body: bytes = b"",
        *,
        opaque: int = 1,
        flag: int = 0,
    ) -> bytes:
        """Returns the bytes of a request."""
        return request(code, fields, body, opaque=opaque, flag=flag)

    @property
    def cpu_s(self) -> float:
        """Processor time that it has used."""
        return cpu_s_of(self.program.pid)

    def watch(self, flood: Flood) -> Effect:
        """Floods it, with a client beside, and waits for its memory to come back."""
        before_mb, cpu_s, begun_s = self.program.resident_mb, self.cpu_s, time.monotonic()
        samples = [before_mb]
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(_SAMPLE_S):
                samples.append(self.program.resident_mb)

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            program, first = self.program, self._sent_count
            way = Way(address=program.address, topic=TOPIC, first=first, pids=(program.pid,))
            with Bystander(way) as bystander:
                flood(self)
            seconds, cpu_s = time.monotonic() - begun_s, self.cpu_s - cpu_s
        finally:
            ended.set()
            sampler.join()
        seen = bystander.seen
        self._sent_count += len(seen.waits_ms)
        self._acknowledged.update(seen.acknowledged)
        turns_ms = self._turns_ms(begun_s, begun_s + seconds)
        back = self._memory_back(before_mb)
        return Effect(seen, seconds, cpu_s, before_mb, max(samples), *back, turns_ms)

    def _turns_ms(self, begin_s: float, end_s: float) -> list[float]:
        """Processor time of each turn in a time of the monotonic clock, as the victim noted it."""
        turns = self._turns
        if turns is None:
            return []
        turns.unlink(missing_ok=True)
        os.kill(self.program.pid, signal.SIGUSR2)
        wait_until(turns.exists, what="turns of the victim", deadline_s=_RETURN_S)
        noted = array("d", turns.read_bytes())
        return [
            used_s * 1000
            for at_s, used_s in zip(noted[::2], noted[1::2], strict=True)
            if begin_s <= at_s <= end_s
        ]

    def _memory_back(self, before_mb: float) -> tuple[float, float | None]:
        begun_s = time.monotonic()
        try:
            wait_until(
                lambda: self.program.resident_mb <= before_mb + SPARE_MB,
                what="memory that returns",
                deadline_s=_RETURN_S,
            )
        except AssertionError:
            return self.program.resident_mb, None
        return self.program.resident_mb, time.monotonic() - begun_s

    def lost(self) -> set[int]:
        """Returns the acknowledged messages of all bystanders that cannot be read any more."""
        with self.connect() as client:
            records = client.read_queue(TOPIC, 0)
        return self._acknowledged - {
            int(record.body) for record in records if record.body.strip().isdigit()
        }
