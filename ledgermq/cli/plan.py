"""``ledgermq plan --rate N --size BYTES``: what a load asks of machines, before they are bought.

Disk and network follow from the formats on disk and on the wire; processor time from what was
measured (docs/performance.md), scaled by how quick this machine is at one piece of the same work.
A plan is an estimate: figures of disk and network are right within a few percent, those of
processor time within some tens.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from typing import Final, NamedTuple

from ledgermq.cli.failure import fail
from ledgermq.cli.table import print_table
from ledgermq.protocol.record import RECORD_FIXED_BYTES, encode_record

# Bytes a message takes beside its body: record, topic and properties, head of the entry and its
# index, unit of the queue, and for each key a slot of the key index.
_RECORD_BYTES: Final = RECORD_FIXED_BYTES + 100
_ENTRY_BYTES: Final = 48 + 32
_QUEUE_UNIT_BYTES: Final = 20
_KEY_BYTES: Final = 40
# us of one core for a message, and for each KiB of it: measured, see docs/performance.md.
_LEADER_US: Final = (9.5, 2.8)
_FOLLOWER_US: Final = (4.6, 1.9)
_PULL_US: Final = (1.0, 0.5)
_SYNC_FLUSH_US: Final = 4.0
# What the machine of those figures took to encode a record of 1 KiB.
_REFERENCE_US: Final = 1.39
# A leader that is busier answers late; a disk that is fuller refuses messages.
_BUSY_MAX: Final = 0.60
_DISK_FULL_MAX: Final = 0.70
_BASE_MEMORY: Final = 45 << 20
_QUEUE_MEMORY: Final = 4096
_DESCRIPTORS_PER_QUEUE: Final = 2
_UNITS: Final = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_TIMES: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")


class Load(NamedTuple):
    """What is asked for: messages a second, and what is done with them.

    Attributes:
        rate: messages a second, of all producers together.
        size: bytes of a body.
        keys: of one message.
        groups: consumer groups that each read everything.
        retention_s: how long messages stay.
        members: of one broker group.
        queues: of all topics together.
        is_sync: whether a send waits for disks.
    """

    rate: float
    size: int
    keys: int
    groups: int
    retention_s: float
    members: int
    queues: int
    is_sync: bool


class Plan(NamedTuple):
    """What it takes. Bytes are of each member, network of the leader, of one of `broker_groups`."""

    broker_groups: int
    disk_bytes: int
    disk_write_bytes_s: float
    network_in_bytes_s: float
    network_out_bytes_s: float
    leader_cores: float
    follower_cores: float
    memory_bytes: int
    descriptors: int


def plan_of(load: Load, slowness: float) -> Plan:
    """Returns what a load takes.

    Args:
        load: see there.
        slowness: time of this machine for a piece of work, over that of the one which was measured.
    """
    kib = load.size / 1024
    sync_us = _SYNC_FLUSH_US if load.is_sync else 0.0
    send_us = _LEADER_US[0] + _LEADER_US[1] * kib + sync_us
    pulls_us = load.groups * (_PULL_US[0] + _PULL_US[1] * kib)
    leader = load.rate * (send_us + pulls_us) * slowness / 1e6
    follower = load.rate * (_FOLLOWER_US[0] + _FOLLOWER_US[1] * kib + sync_us) * slowness / 1e6
    if load.members == 1:
        follower = 0.0
    # A broker computes on one core; more load is spread over more groups.
    broker_groups = max(math.ceil(leader / _BUSY_MAX), 1)
    rate = load.rate / broker_groups
    record = load.size + _RECORD_BYTES
    stored = record + _ENTRY_BYTES + _QUEUE_UNIT_BYTES + load.keys * _KEY_BYTES
    queues = math.ceil(load.queues / broker_groups)
    # Consumers that keep up read from the page cache what was written a minute ago.
    hot_bytes = rate * stored * 60
    return Plan(
        broker_groups=broker_groups,
        disk_bytes=math.ceil(rate * stored * load.retention_s / _DISK_FULL_MAX),
        disk_write_bytes_s=rate * stored,
        network_in_bytes_s=rate * record,
        network_out_bytes_s=rate * record * (load.members - 1 + load.groups),
        leader_cores=leader / broker_groups,
        follower_cores=follower / broker_groups,
        memory_bytes=math.ceil(_BASE_MEMORY + queues * _QUEUE_MEMORY + hot_bytes),
        descriptors=queues * _DESCRIPTORS_PER_QUEUE + 1000,
    )


def measured_slowness() -> float:
    """Returns how slow this machine is: 1 as the one that was measured, 2 twice as slow."""
    host = (b"\x7f\0\0\1", 10911)
    body, properties = bytes(1024), b"KEYS\x01k\x02"
    best_s = math.inf
    for _ in range(30):
        begin_s = time.perf_counter()
        for offset in range(1000):
            encode_record(b"Plan", 0, 0, offset, 0, 0, 0, host, 0, host, 0, 0, body, properties)
        best_s = min(best_s, time.perf_counter() - begin_s)
    return best_s * 1e6 / 1000 / _REFERENCE_US


def _bytes(text: str) -> int:
    return int(_quantity(text, _UNITS, "bytes, as 1024, 1KiB, 4MiB"))


def _seconds(text: str) -> float:
    return _quantity(text, _TIMES, "a time, as 90s, 30m, 72h, 7d")


def _quantity(text: str, units: dict[str, int], form: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2].lower() not in units:
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    return float(found[1]) * units[found[2].lower()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--rate", type=float, required=True, metavar="N", help="messages a second")
    parser.add_argument(
        "--size", type=_bytes, required=True, metavar="BYTES", help="of a body: 1024, 1KiB, 4MiB"
    )
    parser.add_argument("--keys", type=int, default=1, metavar="N", help="of a message; default: 1")
    parser.add_argument(
        "--groups", type=int, default=1, metavar="N", help="consumer groups that read all of it"
    )
    parser.add_argument(
        "--retention", type=_seconds, default="72h", metavar="TIME", help="default: 72h"
    )
    parser.add_argument(
        "--members", type=int, default=3, metavar="N", help="of a broker group; default: 3"
    )
    parser.add_argument(
        "--queues", type=int, default=64, metavar="N", help="of all topics; default: 64"
    )
    parser.add_argument("--sync-flush", action="store_true", help="sends wait for disks")
    parser.add_argument(
        "--like-measured", action="store_true", help="do not measure how quick this machine is"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the plan."""
    limits = {
        "--rate": (options.rate, 0.001, 1e9),
        "--size": (options.size, 0, 1 << 30),
        "--keys": (options.keys, 0, 1000),
        "--groups": (options.groups, 0, 100_000),
        "--retention": (options.retention, 1, 10 * 365 * 86_400),
        "--members": (options.members, 1, 9),
        "--queues": (options.queues, 1, 10_000_000),
    }
    for name, (value, low, high) in limits.items():
        if not low <= value <= high:
            return fail(f"{name} is {value:g}, allowed are {low:g} to {high:g}")
    load = Load(
        rate=options.rate,
        size=options.size,
        keys=options.keys,
        groups=options.groups,
        retention_s=options.retention,
        members=options.members,
        queues=options.queues,
        is_sync=options.sync_flush,
    )
    slowness = 1.0 if options.like_measured else measured_slowness()
    plan = plan_of(load, slowness)
    if options.json:
        print(json.dumps({"slowness": round(slowness, 2), **plan._asdict()}, indent=1))
        return 0
    print_table(("what", "how much", "why"), _rows(load, plan, slowness), False)
    return 0


def _rows(load: Load, plan: Plan, slowness: float) -> list[tuple[str, str, str]]:
    busy = f"a leader stays below {_BUSY_MAX:.0%} of a core"
    rows = [
        ("broker groups", f"{plan.broker_groups} of {load.members}", busy),
        (
            "disk, each member",
            _size(plan.disk_bytes),
            f"{load.retention_s / 3600:g} h, {_DISK_FULL_MAX:.0%} full at the most",
        ),
        ("disk writes", f"{_size(plan.disk_write_bytes_s)}/s", "each member, in sequence"),
        ("network in, leader", f"{_size(plan.network_in_bytes_s)}/s", "from producers"),
        (
            "network out, leader",
            f"{_size(plan.network_out_bytes_s)}/s",
            f"to {load.members - 1} followers and {load.groups} consumer groups",
        ),
        ("leader", f"{plan.leader_cores:.2f} cores", f"this machine: {slowness:.2f} x measured"),
        ("follower", f"{plan.follower_cores:.2f} cores", ""),
        ("memory", _size(plan.memory_bytes), "with a minute of messages in the page cache"),
        ("descriptors", f"{plan.descriptors}", "LimitNOFILE"),
    ]
    return rows


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 1000 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:,.3g} TiB" if count < 1000 else f"{count:,.0f} TiB"
