"""A leader whose process is stopped: its connections live on, and nothing comes over them.

Members of the group notice by their heart beats. Clients that wait for messages would wait as long
as a broker may hold a pull; those that send would wait for each answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from pathlib import Path

from ledgermq.client import (
    ConsumerConfig,
    LitePullConsumer,
    Message,
    NoRouteError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from tests.e2e.up_cluster import UpCluster
from tests.fault.lag import Lag
from tests.fault.up_group import small_group, wait_until_whole
from tests.scenarios import run, until

TOPIC = "Silence"
# Clients promise 3 s, once another one leads, on a machine that has time for all processes; a pull
# is held for 15 s.
SOON_S = 8.0


class Waiting:
    """Consumers of all kinds that wait for a message, and when each of them got it."""

    def __init__(self) -> None:
        self.came_s: dict[str, float] = {}
        self._ready: set[str] = set()

    def is_ready(self) -> bool:
        return len(self._ready) == 4

    async def run(self, name_server: str) -> None:
        await asyncio.gather(
            self._push(name_server, "concurrent"),
            self._push(name_server, "orderly"),
            self._lite(name_server),
            self._pull(name_server),
        )

    def _came(self, kind: str, body: bytes) -> None:
        if body == b"after":
            self.came_s.setdefault(kind, asyncio.get_running_loop().time())

    async def _push(self, name_server: str, kind: str) -> None:
        async def listen(message: ReceivedMessage) -> None:
            self._came(kind, message.body)

        mode = "orderly" if kind == "orderly" else "concurrent"
        async with PushConsumer(
            name_server, kind, TOPIC, listen, start="first", mode=mode, config=ConsumerConfig()
        ) as consumer:
            await until(lambda: len(consumer.queues()) == 4, "queues")
            self._ready.add(kind)
            await asyncio.Event().wait()

    async def _lite(self, name_server: str) -> None:
        async with LitePullConsumer(name_server, "lite", start="first") as consumer:
            await consumer.subscribe(TOPIC)
            await until(lambda: len(consumer.assignment()) == 4, "queues")
            self._ready.add("lite")
            async for message in consumer:
                self._came("lite", message.body)

    async def _pull(self, name_server: str) -> None:
        async with PullConsumer(name_server) as consumer:
            await consumer.assign(await consumer.queues(TOPIC), start="first")
            self._ready.add("pull")
            async for message in consumer:
                self._came("pull", message.body)


async def known(consumer: PullConsumer) -> None:
    """Returns when name servers know the topic."""
    while True:
        with contextlib.suppress(NoRouteError):
            if await consumer.queues(TOPIC):
                return
        await asyncio.sleep(0.05)


async def stop_leader(group: UpCluster) -> None:
    loop = asyncio.get_running_loop()
    waiting = Waiting()
    async with Producer(group.name_server) as idle:
        await idle.send(Message(TOPIC, b"before"))
        async with PullConsumer(group.name_server) as consumer:
            await known(consumer)
        task = loop.create_task(waiting.run(group.name_server))
        await until(waiting.is_ready, "consumers that wait")
        leader = group.find_leader()
        assert leader is not None
        group.signal(signal.SIGSTOP, leader)
        try:
            begun_s, lag = loop.time(), Lag()
            beating = loop.create_task(lag.beat())
            # Whoever has no connection yet learns first that another one serves.
            async with Producer(group.name_server) as fresh:
                own = loop.create_task(idle.send(Message(TOPIC, b"idle")))
                await fresh.send(Message(TOPIC, b"after"))
                serves_s = loop.time()
                await own
                went_on_s = loop.time()
            await until(lambda: len(waiting.came_s) == 4, "the message at all consumers")
            beating.cancel()
        finally:
            group.signal(signal.SIGCONT, leader)
        after_s = {kind: at - serves_s for kind, at in waiting.came_s.items()}
        shown = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in sorted(after_s.items()))
        shown = (
            f"served again after {serves_s - begun_s:.1f} s; then {shown};"
            f" the idle producer {went_on_s - serves_s:.1f} s"
            f"; this process was {lag.total_s:.1f} s late in all"
        )
        logging.getLogger(__name__).warning(shown)
        assert max(*after_s.values(), went_on_s - serves_s) < SOON_S + lag.total_s, shown
        task.cancel()
        await asyncio.wait([task])


def test_clients_that_wait_leave_a_stopped_leader_soon(tmp_path: Path) -> None:
    with small_group(tmp_path) as group:
        wait_until_whole(group)
        run(stop_leader(group), 120)
