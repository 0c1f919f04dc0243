"""The stock producer under load, and the check that what it was promised is there.

The load program notes each acknowledgement in a file before it sends on: sequence number, place,
digest. The check consumes the topic with the stock push consumer and compares.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.waiting import wait_until

from .builds import java_program
from .programs import IDLE_SECONDS, Report, run

_STOP_SECONDS: Final = 60.0
_CONSUME_SECONDS: Final = 600.0

Place = tuple[int, int]


class StockLoad:
    """The Java producer 4.9.3 sending small messages at a bounded rate until it is stopped."""

    def __init__(
        self, *, namesrv: str, topic: str, acks: Path, rate_per_second: int = 400, threads: int = 4
    ) -> None:
        self.acks = acks
        self._log_path = acks.with_suffix(".log")
        self._command = [
            *java_program("4.9.3"), "load", "--namesrv", namesrv, "--topic", topic,
            "--group", f"load_{acks.stem}", "--acks", str(acks), "--rate", str(rate_per_second),
            "--threads", str(threads), "--timeout", "3000", "--seconds", "1200",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
            process.kill()
            process.wait()

    def stop(self) -> Report:
        """End the load by closing its input; returns its last report."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_STOP_SECONDS)
        text = self._log_path.read_text(errors="replace")
        assert code == 0, f"the load program ended with {code}:\n{text[-2000:]}"
        lines = [line for line in text.splitlines() if line.startswith('{"event":"done"')]
        done: Report = json.loads(lines[-1])
        return done

    def wait_for_acks(self, count: int, *, seconds: float) -> None:
        """Wait until `count` more messages than now are acknowledged."""
        goal = self.ack_count() + count
        wait_until(
            lambda: self.ack_count() >= goal,
            what=f"{count} more acknowledgements",
            deadline_s=seconds,
            detail=lambda: self._log_path.read_text(errors="replace")[-1500:],
        )

    def ack_count(self) -> int:
        """Return how many acknowledgements the file holds."""
        return self.acks.read_bytes().count(b"\n") if self.acks.exists() else 0


def read_acks(path: Path) -> list[Report]:
    """Return the acknowledgements of a load."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(slots=True)
class Delivery:
    """What one push consumer was given of a topic."""

    # (sequence number, digest) by place.
    found: dict[Place, tuple[str, str]] = field(default_factory=dict)
    deliveries: Counter[Place] = field(default_factory=Counter)

    def hear(self, report: Report) -> None:
        """Take one report of the program."""
        if report["event"] == "message":
            place = (report["queue"], report["offset"])
            self.found[place] = (report["properties"]["seq"], report["sha256"])
            self.deliveries[place] += 1


def consume_all(*, namesrv: str, topic: str, group: str, expect: int, log_path: Path) -> Delivery:
    """Consume a topic from its beginning with the stock push consumer of a new group."""
    delivery = Delivery()
    command = [
        *java_program("4.9.3"), "consume", "--namesrv", namesrv, "--topic", topic,
        "--group", group, "--expect", str(expect), "--idle", str(IDLE_SECONDS), "--linger", "3",
    ]  # fmt: skip
    run(command, delivery.hear, log_path=log_path, deadline_seconds=_CONSUME_SECONDS)
    return delivery


def find_faults(acks: list[Report], delivery: Delivery, ends: list[int]) -> list[str]:
    """Compare acknowledgements, deliveries and queue ends; returns one line for each fault.

    Args:
        ends: the end offset of each queue, as the leader told it after the load.
    """
    faults: list[str] = []
    by_place: dict[Place, list[int]] = defaultdict(list)
    for ack in acks:
        place = (ack["queue"], ack["offset"])
        by_place[place].append(ack["seq"])
        found = delivery.found.get(place)
        if found is None:
            faults.append(f"acknowledged {ack['seq']} at {place}, nothing was delivered from there")
        elif found != (str(ack["seq"]), ack["sha256"]):
            faults.append(f"acknowledged {ack['seq']} at {place}, delivered {found[0]}")
    faults += [f"{place} acknowledged for {seqs}" for place, seqs in by_place.items() if seqs[1:]]
    faults += [
        f"{place} was delivered {count} times"
        for place, count in sorted(delivery.deliveries.items())
        if count > 1
    ]
    for queue, end in enumerate(ends):
        missing = [offset for offset in range(end) if (queue, offset) not in delivery.found]
        if missing:
            faults.append(f"queue {queue} of {end}: nothing at {missing[:10]} ({len(missing)})")
    beyond = [(queue, offset) for queue, offset in delivery.found if offset >= ends[queue]]
    if beyond:
        faults.append(f"delivered beyond the end: {sorted(beyond)[:10]}")
    return faults
