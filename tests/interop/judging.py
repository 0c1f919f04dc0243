"""What a sender and a consumer reported, compared with the corpora: the rows of the table.

The programs only report. Here is decided what counts as lost, damaged or out of order, from the
corpora and from the reports of both sides.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .corpus import Expected
from .programs import Report

# What clients and brokers add to the properties that a program set.
ADDED_PROPERTIES: Final = frozenset(
    {
        "UNIQ_KEY", "WAIT", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "CLUSTER",
        "INSTANCE_ID", "TRACE_ON", "MSG_REGION", "1ST_POP_TIME",
    }
)  # fmt: skip

_PROBLEMS_KEPT_MAX: Final = 20

# Where a message lies: queue id and queue offset.
Place = tuple[int, int]


@dataclass(slots=True)
class Sending:
    """The reports of one sender."""

    client: str
    # Place of each acknowledged message by sequence number; queue -1 where the client hides it.
    acknowledged: dict[int, Place] = field(default_factory=dict)
    # Sequence numbers that were sent more than once: the log may hold them twice.
    sent_again: set[int] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def hear(self, report: Report) -> None:
        """Take one report."""
        if report["event"] == "sent":
            queue = report.get("queue")
            self.acknowledged[report["seq"]] = (-1 if queue is None else queue, report["offset"])
            if report["attempts"] > 1:
                self.sent_again.add(report["seq"])
        elif report["event"] == "refused":
            self.refusals.append(f"{report['seq']}: {report['reason']}")


@dataclass(slots=True)
class Consuming:
    """The reports of one consumer, checked as they come."""

    client: str
    corpora: Mapping[str, Mapping[int, Expected]]
    # True when the consumer promises to deliver a queue in order.
    orderly: bool
    # (sending client, sequence number) by place.
    found: dict[Place, tuple[str, int]] = field(default_factory=dict)
    damaged: set[tuple[str, int]] = field(default_factory=set)
    delivered_again: int = 0
    delivered_early: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # From the start of the consumer to its first message; None before that.
    begin_seconds: float | None = None
    # Last offset delivered of each queue.
    _last: dict[int, int] = field(default_factory=dict)
    # When the program told that its consumer has started, monotonic.
    _ready_at: float | None = None

    def hear(self, report: Report) -> None:
        """Take one report: compare the message with its draft, note where it lay."""
        if report["event"] == "ready":
            self._ready_at = time.monotonic()
        if report["event"] != "message":
            return
        if self.begin_seconds is None:
            now = time.monotonic()
            self.begin_seconds = now - (self._ready_at or now)
        properties = report["properties"]
        place = (report["queue"], report["offset"])
        sender, seq = properties.get("client", "?"), int(properties.get("seq", -1))
        expected = self.corpora.get(sender, {}).get(seq)
        if expected is None:
            self._complain(f"{place} holds {sender}/{seq}, which nobody sent")
            self.damaged.add((sender, seq))
            return
        flaw = self._find_flaw(report, expected)
        if flaw:
            self.damaged.add((sender, seq))
            self._complain(f"{place} {sender}/{seq}: {flaw}")
        if place in self.found:
            self.delivered_again += 1
            if self.found[place] != (sender, seq):
                self._complain(f"{place} held {self.found[place]}, then {sender}/{seq}")
                self.damaged.add((sender, seq))
        self.found[place] = (sender, seq)
        if self.orderly and report["offset"] < self._last.get(report["queue"], 0):
            self.delivered_early += 1
        self._last[report["queue"]] = report["offset"]

    def _find_flaw(self, report: Report, expected: Expected) -> str | None:
        if report["size"] != expected.size:
            return f"{report['size']} bytes, not {expected.size}"
        if report["sha256"] != expected.digest:
            return f"the body of {expected.size} bytes differs"
        properties = report["properties"]
        for name, value in expected.properties.items():
            if properties.get(name) != value:
                return f"{name} is {properties.get(name)!r}, not {value!r}"
        extra = set(properties) - set(expected.properties) - ADDED_PROPERTIES
        return f"unexpected properties {sorted(extra)}" if extra else None

    def _complain(self, text: str) -> None:
        if len(self.problems) < _PROBLEMS_KEPT_MAX:
            self.problems.append(text)


@dataclass(slots=True, frozen=True, kw_only=True)
class Verdict:
    """One row of the table: everything one consumer found of all that was sent."""

    client: str
    sent: int
    consumed: int
    lost: int
    damaged: int
    # Messages whose place contradicts the order in which their sender had them acknowledged.
    out_of_order: int
    # Offsets below the highest of a queue at which nothing was found.
    gaps: int
    # Deliveries of a place that had been delivered before.
    again: int
    # Acknowledged at one place, found at another.
    misplaced: int
    send_seconds: float
    consume_seconds: float
    begin_seconds: float
    problems: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """True when nothing was lost, damaged, out of order, misplaced or missing."""
        return not (self.lost or self.damaged or self.out_of_order or self.gaps or self.misplaced)


def judge(consuming: Consuming, sendings: Mapping[str, Sending]) -> Verdict:
    """Compare what a consumer found with what every sender had acknowledged."""
    places: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for place, message in sorted(consuming.found.items()):
        places[message].append(place)
    lost, misplaced = 0, 0
    problems = list(consuming.problems)
    for name, sending in sendings.items():
        for seq, (queue, offset) in sending.acknowledged.items():
            found = places.get((name, seq), [])
            lost += not found
            is_there = any(
                found_offset == offset and queue in (-1, found_queue)
                for found_queue, found_offset in found
            )
            if found and not is_there:
                misplaced += 1
                problems.append(f"{name}/{seq} acknowledged at {queue, offset}, found at {found}")
            if not found:
                problems.append(f"{name}/{seq} acknowledged at {queue, offset}, not found")
    own = sendings.get(consuming.client)
    return Verdict(
        client=consuming.client,
        sent=sum(len(sending.acknowledged) for sending in sendings.values()),
        consumed=len(consuming.found),
        lost=lost,
        damaged=len(consuming.damaged),
        out_of_order=_count_disorder(consuming, sendings) + consuming.delivered_early,
        gaps=_count_gaps(consuming),
        again=consuming.delivered_again,
        misplaced=misplaced,
        send_seconds=own.seconds if own else 0.0,
        consume_seconds=consuming.seconds,
        begin_seconds=consuming.begin_seconds or 0.0,
        problems=tuple(problems[:_PROBLEMS_KEPT_MAX]),
    )


def _count_disorder(consuming: Consuming, sendings: Mapping[str, Sending]) -> int:
    """Count places at which a sender's sequence number is below one before it in the queue."""
    last: dict[tuple[int, str], int] = {}
    count = 0
    for (queue, _offset), (sender, seq) in sorted(consuming.found.items()):
        if sender in sendings and seq in sendings[sender].sent_again:
            continue
        count += seq < last.get((queue, sender), -1)
        last[queue, sender] = max(seq, last.get((queue, sender), -1))
    return count


def _count_gaps(consuming: Consuming) -> int:
    offsets: dict[int, list[int]] = defaultdict(list)
    for queue, offset in consuming.found:
        offsets[queue].append(offset)
    return sum(max(found) + 1 - len(found) for found in offsets.values())


def table(verdicts: list[Verdict], packages: Mapping[str, str], megabytes: float) -> str:
    """Return the table of client against result."""
    head = (
        f"{'client':<12}{'package':<30}{'sent':>8}{'consumed':>10}{'lost':>6}{'damaged':>9}"
        f"{'disorder':>10}{'gaps':>6}{'again':>7}{'send s':>8}{'begin s':>9}{'consume s':>11}"
        f"{'MB/s':>7}"
    )
    rows = [head, "-" * len(head)]
    for one in verdicts:
        rate = megabytes / one.consume_seconds if one.consume_seconds else 0.0
        rows.append(
            f"{one.client:<12}{packages.get(one.client, ''):<30}{one.sent:>8}{one.consumed:>10}"
            f"{one.lost:>6}{one.damaged:>9}{one.out_of_order + one.misplaced:>10}{one.gaps:>6}"
            f"{one.again:>7}{one.send_seconds:>8.1f}{one.begin_seconds:>9.1f}"
            f"{one.consume_seconds:>11.1f}{rate:>7.1f}"
        )
    return "\n".join(rows)
