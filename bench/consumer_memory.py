"""Memory of a push consumer of 64 queues whose listener stands still; the exit code judges.

python -m bench.consumer_memory [--bound-mib 64]

A real broker holds more than a consumer may have. A process of its own consumes with a listener
that never returns, until it takes no more, and tells its memory. It has to stay within its bound
and one answer for each queue; a fifth more is left to the allocator.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from typing import Final

from bench.cluster import cluster, resident_mb
from ledgermq.client import (
    ConsumerConfig,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)

QUEUES: Final = 64
MIB: Final = 1024 * 1024
# What one answer of a broker holds at most.
ANSWER_BYTES: Final = 256 * 1024
SLACK: Final = 1.2
# Sizes of bodies, and messages of each.
LOADS: Final = ((10, 100_000), (1024, 100_000), (64 * 1024, 3_000))
BATCH: Final = 256 * 1024
SETTLED_S: Final = 3.0
INSIDE: Final = "--inside"


async def fill(name_server: str, topic: str, body_bytes: int, count: int) -> None:
    """Sends what waits, in batches over all queues."""
    each = max(1, min(500, BATCH // (body_bytes + 200)))
    body = os.urandom(body_bytes)
    async with Producer(name_server) as producer:
        for _ in range(count // each):
            batch = [Message(topic, body, keys="key", tags="tag") for _ in range(each)]
            await producer.submit_batch(batch)
        await producer.flush()


async def stall(name_server: str, topic: str, kind: str, bound: int) -> dict[str, float]:
    """Consumes until nothing more is taken; returns memory in MB, and messages held."""
    loop = asyncio.get_running_loop()
    # Not bound by the number of messages of a queue.
    config = ConsumerConfig(
        cached_bytes_total_max=bound, cached_messages_max=100_000, close_timeout_s=0
    )
    before = resident_mb(os.getpid())

    async def hang(message: ReceivedMessage) -> None:
        await asyncio.Event().wait()

    async def settled(consumer: PushConsumer | LitePullConsumer) -> int:
        count, since_s = -1, loop.time()
        while loop.time() - since_s < SETTLED_S:
            await asyncio.sleep(0.1)
            now = consumer._holding.pending_count
            if now != count:
                count, since_s = now, loop.time()
        return count

    if kind == "lite":
        async with LitePullConsumer(name_server, "memory", start="first", config=config) as lite:
            await lite.subscribe(topic)
            count = await settled(lite)
            grown = resident_mb(os.getpid()) - before
    else:
        mode = "orderly" if kind == "orderly" else "concurrent"
        async with PushConsumer(
            name_server, kind, topic, hang, start="first", mode=mode, config=config
        ) as push:
            count = await settled(push)
            # As listeners do that look at what they get.
            for held in push._arrived.items:
                if held is not None:
                    _ = held[1].keys, held[1].body
            grown = resident_mb(os.getpid()) - before
    return {"count": count, "grown": grown}


def judge(name_server: str, kind: str, load: tuple[int, int], bound: int) -> bool:
    """Runs one process; prints a line, and tells whether it kept its bound."""
    words = [name_server, f"Memory{load[0]}", kind, str(bound)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.consumer_memory", INSIDE, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.strip().splitlines()[-1])
    most = (bound + QUEUES * ANSWER_BYTES) * SLACK / 1e6
    holds = bool(found["grown"] <= most and found["count"] > 0)
    said = "ok   " if holds else "WRONG"
    print(
        f"{said} {kind}, bodies of {load[0]} bytes: {found['count']:,} held,"
        f" {found['grown']:.0f} MB more than before, allowed {most:.0f}",
        flush=True,
    )
    return holds


def main() -> int:
    """Prints a line for each kind of consumer and size."""
    if sys.argv[1:2] == [INSIDE]:
        name_server, topic, kind, bound = sys.argv[2:]
        print(json.dumps(asyncio.run(stall(name_server, topic, kind, int(bound)))))
        return 0
    parser = argparse.ArgumentParser(description="Memory of a consumer of 64 queues.")
    parser.add_argument("--bound-mib", type=int, default=64)
    bound = parser.parse_args().bound_mib * MIB
    all_hold = True
    with cluster(1) as running:
        for body_bytes, count in LOADS:
            topic = f"Memory{body_bytes}"
            running.create_topic(topic, QUEUES)
            asyncio.run(fill(running.namesrv, topic, body_bytes, count))
        for kind in ("concurrent", "orderly", "lite"):
            for load in LOADS:
                all_hold &= judge(running.namesrv, kind, load, bound)
    print("all holds" if all_hold else "not all holds")
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
