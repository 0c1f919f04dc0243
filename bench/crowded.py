"""What a crowded ordering key and a slow way cost all others; the exit code judges.

python -m bench.crowded [--round-trip-ms 100] [--seconds 20]

A real broker, and one producer whose way to it is long (tests/far_line.py).

    crowded   one ordering key is offered three times what it takes, which is a message for each
              round trip. All other sends keep their rate, none fails; the key keeps its capacity
              and its order, and what is too much is refused before it is sent. Nothing is stored
              twice, and one connection lasts to the end.
    storm     the way becomes longer than a try may take, for a while. Nothing is stored more often
              than once for each try that was told as failed; when the way is short again, sends are
              as quick as before, and nothing is stored a second time any more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench.cluster import cluster
from ledgermq.client import (
    ClientError,
    LaneFullError,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
)
from ledgermq.client.sends import SendRoad
from tests.far_line import FarLoop

TOPIC = "Crowded"
OTHERS_EACH_S = 0.01
# So much more than it takes is the key offered.
OFFERED = 3
KEY = "hot"
# Of what the others got alone, and of the key's capacity.
RATE_MIN = 0.95
CAPACITY_MIN = 0.8
WINDOW_S = 5.0
# Longer than a try may take, and shorter than the silence of a connection may last, which is 3 s.
STORM_ROUND_TRIP_S = 2.5
TRY_S = 1.0
STORM_S = 20.0
AFTER_S = 5.0


class Stream:
    """Sends of one key, or of none, each a task of its own at its time."""

    def __init__(self, producer: Producer, name: str, key: str | None, each_s: float) -> None:
        """Sends nothing yet."""
        self._producer = producer
        self._name = name
        self._key = key
        self._each_s = each_s
        self.count = 0
        # When each was acknowledged, how long that took, and where it is.
        self.acknowledged_s: list[float] = []
        self.took_s: list[float] = []
        self.failures: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        """Sends for so long, and waits for all outcomes."""
        loop = asyncio.get_running_loop()
        tasks = []
        due_s = loop.time()
        end_s = due_s + seconds
        while due_s < end_s:
            tasks.append(loop.create_task(self._send(self.count)))
            self.count += 1
            due_s += self._each_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        await asyncio.gather(*tasks)

    async def _send(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            message = Message(TOPIC, f"{self._name}:{number}".encode())
            await self._producer.send(message, ordering_key=self._key)
        except ClientError as error:
            self.failures[type(error).__name__] += 1
            return
        self.acknowledged_s.append(loop.time())
        self.took_s.append(loop.time() - begun_s)

    def rate(self) -> float:
        """Acknowledged, a second."""
        span_s = max(self.acknowledged_s) - min(self.acknowledged_s)
        return (len(self.acknowledged_s) - 1) / span_s


class FailedTries:
    """Counts the tries of each message that failed, as its producer is told."""

    def __init__(self) -> None:
        self.by_id: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts in the block."""
        again_or_not = SendRoad._again_or_not

        def count(road: SendRoad, send: Any, error: Any, retry: Any) -> None:
            self.by_id[send.message_id] += 1
            again_or_not(road, send, error, retry)

        SendRoad._again_or_not = count  # type: ignore[method-assign]
        try:
            yield
        finally:
            SendRoad._again_or_not = again_or_not  # type: ignore[method-assign]


async def stored(name_server: str) -> list[tuple[str, bytes]]:
    """Id and body of all that lies in the topic, each queue in its order."""
    found: list[tuple[str, bytes]] = []
    async with PullConsumer(name_server) as consumer:
        for queue in await consumer.queues(TOPIC):
            offset = await consumer.min_offset(queue)
            while messages := (await consumer.pull(queue, offset)).messages:
                found += [(one.message_id, one.body) for one in messages]
                offset = messages[-1].queue_offset + 1
    return found


def numbers_of(bodies: list[bytes], name: str) -> list[int]:
    """The numbers of one stream, as they lie."""
    parts = [body.decode().partition(":") for body in bodies]
    return [int(number) for stream, _, number in parts if stream == name]


class Verdict:
    """What was wrong."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def demand(self, holds: bool, what: str) -> None:
        """Prints a line, and remembers what does not hold."""
        print(f"{'ok   ' if holds else 'WRONG'} {what}", flush=True)
        if not holds:
            self.complaints.append(what)


async def crowd(name_server: str, round_trip_s: float, seconds: float, verdict: Verdict) -> None:
    """One crowded key beside others."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FarLoop)
    loop.round_trip_s = round_trip_s
    loop.connected.clear()
    config = ProducerConfig(timeout_s=4.0)
    async with Producer(name_server, config=config) as producer:
        solo = Stream(producer, "solo", None, 0.2)
        await solo.run(3.0)
        trip_s = statistics.median(solo.took_s)
        alone = Stream(producer, "alone", None, OTHERS_EACH_S)
        await alone.run(seconds / 2)
        others = Stream(producer, "others", None, OTHERS_EACH_S)
        crowded = Stream(producer, KEY, KEY, trip_s / OFFERED)
        begun_s = loop.time()
        await asyncio.gather(others.run(seconds), crowded.run(seconds))
        connected = Counter(loop.connected)
    print(f"a send alone takes {trip_s * 1000:.0f} ms")
    verdict.demand(not others.failures, f"of {others.count} other sends failed: {others.failures}")
    shown = f"others: {others.rate():.1f} a second beside the key, {alone.rate():.1f} without it"
    verdict.demand(others.rate() >= RATE_MIN * alone.rate(), shown)
    waits = [statistics.median(stream.took_s) for stream in (others, alone)]
    verdict.demand(
        waits[0] <= 1.5 * waits[1], f"their median wait {waits[0]:.3f}, {waits[1]:.3f} s"
    )
    for window in range(int(seconds / WINDOW_S)):
        from_s = begun_s + window * WINDOW_S
        count = sum(from_s <= at_s < from_s + WINDOW_S for at_s in crowded.acknowledged_s)
        shown = f"the key from {window * WINDOW_S:.0f} s on: {count * trip_s / WINDOW_S:.2f} of it"
        verdict.demand(count * trip_s / WINDOW_S >= CAPACITY_MIN, f"{shown}s capacity")
    refused = set(crowded.failures) == {LaneFullError.__name__}
    verdict.demand(refused, f"{crowded.count} offered to the key, failed: {dict(crowded.failures)}")
    verdict.demand(max(connected.values()) == 1, f"connections: {dict(connected)}")
    found = await stored(name_server)
    copies = Counter(id_ for id_, _ in found)
    verdict.demand(max(copies.values()) == 1, f"{len(copies)} messages stored, none twice")
    numbers = numbers_of([body for _, body in found], KEY)
    in_order = numbers == sorted(numbers) and len(numbers) == len(crowded.acknowledged_s)
    verdict.demand(in_order, f"{len(numbers)} of the key, in order, all acknowledged")


async def storm(name_server: str, verdict: Verdict) -> None:
    """A way that is too long for a while."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FarLoop)
    loop.round_trip_s = 0.001
    tries = FailedTries()
    config = ProducerConfig(attempt_timeout_s=TRY_S)
    async with Producer(name_server, config=config) as producer:
        before = Stream(producer, "before", None, OTHERS_EACH_S)
        await before.run(AFTER_S)
        with tries.counted():
            slow = Stream(producer, "slow", None, OTHERS_EACH_S)
            slowing = loop.create_task(slow.run(STORM_S + AFTER_S))
            loop.round_trip_s = STORM_ROUND_TRIP_S
            await asyncio.sleep(STORM_S)
            loop.round_trip_s = 0.001
            await slowing
        after = Stream(producer, "after", None, OTHERS_EACH_S)
        await after.run(AFTER_S)
    found = Counter(id_ for id_, _ in await stored(name_server))
    too_many = sum(count > 1 + tries.by_id[id_] for id_, count in found.items())
    extra = sum(found.values()) - len(found)
    said = f"{slow.count} sends on a slow way, {slow.failures.total()} given up, "
    verdict.demand(
        not too_many and slow.failures.total() == 0,
        f"{said}{tries.by_id.total()} failed tries, {extra} copies, {too_many} too many",
    )
    # A try that gets no answer in time doubles the time of the next one.
    verdict.demand(extra <= 2 * slow.count, f"{extra / slow.count:.2f} copies of a message")
    bodies = Counter(body for _, body in await stored(name_server))
    again = sum(count > 1 for body, count in bodies.items() if body.startswith(b"after:"))
    waits = [statistics.median(one.took_s) for one in (before, after)]
    verdict.demand(not after.failures and again == 0, f"afterwards: {again} stored twice")
    shown = f"median wait {waits[1] * 1000:.1f} ms after, {waits[0] * 1000:.1f} ms before"
    verdict.demand(waits[1] <= max(3 * waits[0], 0.05), shown)


def main() -> int:
    """Prints what holds and what does not; the exit code is 1 when anything does not."""
    parser = argparse.ArgumentParser(description="A crowded key and a slow way.")
    parser.add_argument("--round-trip-ms", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    verdict = Verdict()
    with cluster(1) as running, asyncio.Runner(loop_factory=FarLoop) as runner:
        running.create_topic(TOPIC, 4)
        far_s = options.round_trip_ms / 1000
        runner.run(crowd(running.namesrv, far_s, options.seconds, verdict))
        runner.run(storm(running.namesrv, verdict))
    print("all holds" if not verdict.complaints else f"{len(verdict.complaints)} do not hold")
    return 1 if verdict.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
