"""Members of a group are restarted one after the other: no queue stands still for long."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from ledgermq.client import Message, Producer
from tests.e2e.up_cluster import UpCluster
from tests.fault.lag import Lag
from tests.fault.up_group import small_group, wait_until_whole
from tests.processes import ChildProcess
from tests.scenarios import run, until

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "Rolling"
QUEUES = 4
MEMBERS = 3
# A hand-over costs up to 2 s on a machine that has time for all processes; what is not handed over
# stands still for 20 s, until the next look.
STILL_S = 6.0
# How often each queue gets a message.
PACE_S = 0.05

MEMBER = """
import asyncio, sys
from ledgermq.client import PushConsumer


async def handle(message):
    print("got", message.queue.queue_id, message.body.decode(), flush=True)


async def main():
    name_server, topic, mode = sys.argv[1:]
    await PushConsumer(name_server, "roll" + mode, topic, handle, start="first", mode=mode).run()


asyncio.run(main())
"""


class Members:
    """The processes of the group, and when each queue was last consumed."""

    def __init__(self, folder: Path, group: UpCluster, mode: str) -> None:
        self._folder = folder
        self._words = [group.name_server, TOPIC + mode, mode]
        self._logs: list[tuple[Path, int]] = []
        self._running: list[ChildProcess] = []
        self.count = 0
        # Queue -> time of its last message, and the longest pause.
        self.last_s: dict[int, float] = {}
        self.still_s: dict[int, float] = {}
        self.bodies: set[str] = set()
        self.twice = 0
        self._lag = Lag()
        # Of each pause, what is the product's: how late this process was meanwhile is taken off.
        self.own_s: dict[int, float] = {}
        self._lag_before_s: dict[int, float] = {}

    def start(self) -> None:
        log = self._folder / f"member{self.count}.log"
        self.count += 1
        log.touch()
        self._logs.append((log, 0))
        command = [sys.executable, "-c", MEMBER, *self._words]
        environment = {"PYTHONPATH": str(ROOT)}
        self._running.append(ChildProcess(command, log, environment, folder=self._folder))

    async def restart_oldest(self) -> None:
        """Stops one in order, and starts another in its place, as a deployment does."""
        oldest = self._running.pop(0)
        assert await asyncio.to_thread(oldest.stop) == 0, oldest.log_text()
        self.start()

    def stop(self) -> None:
        for process in self._running:
            process.kill()

    def logs(self) -> str:
        """Last words of all, for a failure."""
        return "\n".join(f"{log.name}: {log.read_text()[-1000:]}" for log, _ in self._logs)

    async def watch(self) -> None:
        """Reads what they consume, for ever."""
        loop = asyncio.get_running_loop()
        beating = loop.create_task(self._lag.beat())
        try:
            await self._watch(loop)
        finally:
            beating.cancel()

    async def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            for number, (log, at) in enumerate(self._logs):
                with log.open() as file:
                    file.seek(at)
                    text = file.read()
                whole = text[: text.rfind("\n") + 1]
                self._logs[number] = log, at + len(whole.encode())
                for line in whole.splitlines():
                    self._consumed(line, loop.time())
            await asyncio.sleep(0.02)

    def _consumed(self, line: str, now_s: float) -> None:
        if not line.startswith("got "):
            return  # What its client says of a topic or a broker that is not there yet.
        _, queue, body = line.split(" ", 2)
        before_s = self.last_s.get(int(queue), now_s)
        pause_s = now_s - before_s
        self.still_s[int(queue)] = max(self.still_s.get(int(queue), 0.0), pause_s)
        late_s = self._lag.total_s - self._lag_before_s.get(int(queue), self._lag.total_s)
        self.own_s[int(queue)] = max(self.own_s.get(int(queue), 0.0), pause_s - late_s)
        self._lag_before_s[int(queue)] = self._lag.total_s
        self.last_s[int(queue)] = now_s
        self.twice += body in self.bodies
        self.bodies.add(body)


async def send_on(producer: Producer, topic: str, sent: list[str]) -> None:
    """Keeps all queues busy, for ever."""
    number = 0
    while True:
        for _ in range(QUEUES):
            body = f"m{number}"
            number += 1
            future = await producer.submit(Message(topic, body.encode()))
            future.add_done_callback(lambda done, body=body: done.exception() or sent.append(body))
        await asyncio.sleep(PACE_S)


async def restart_all(members: Members, group: UpCluster, mode: str, sent: list[str]) -> None:
    """Restarts each member twice in order, while messages come."""
    async with Producer(group.name_server) as producer:
        await producer.send(Message(TOPIC + mode, b"first"))
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(send_on(producer, TOPIC + mode, sent))
            watching = tasks.create_task(members.watch())
            for _ in range(MEMBERS):
                members.start()
            await until(lambda: len(members.last_s) == QUEUES, "all queues")
            begun = len(members.bodies)
            await until(lambda: len(members.bodies) > begun + 200, "a group that works")
            members.still_s.clear()
            members.own_s.clear()
            for _ in range(2 * MEMBERS):
                before = len(members.bodies)
                await members.restart_oldest()
                await until(lambda before=before: len(members.bodies) > before + 200, "messages")
            sending.cancel()
            await asyncio.wait([sending])
            await producer.flush()
            await until(lambda: set(sent) <= members.bodies, "everything that was sent")
            watching.cancel()


async def roll(group: UpCluster, folder: Path, mode: str) -> None:
    sent: list[str] = []
    members = Members(folder, group, mode)
    try:
        await restart_all(members, group, mode, sent)
    except BaseException as error:
        error.add_note(members.logs())
        raise
    finally:
        members.stop()
    shown = ", ".join(f"{queue}: {at:.2f} s" for queue, at in sorted(members.still_s.items()))
    shown = f"{mode}: {2 * MEMBERS} restarts, {len(sent)} messages, {members.twice} twice; {shown}"
    shown += f"; the product's part at most {max(members.own_s.values()):.2f} s"
    logging.getLogger(__name__).warning(shown)
    assert max(members.own_s.values()) < STILL_S, shown


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_no_queue_stands_still_while_members_are_restarted(tmp_path: Path, mode: str) -> None:
    with small_group(tmp_path) as group:
        wait_until_whole(group)
        run(roll(group, tmp_path, mode), 200)
