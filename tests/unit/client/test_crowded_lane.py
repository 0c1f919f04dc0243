"""One ordering key that is offered more than it can take, and everything else beside it."""

import asyncio

import pytest

from ledgermq.client import LaneFullError, Message, Producer, ProducerConfig, SendError
from tests.unit.client.virtual_broker import Broker
from tests.unit.client.virtual_net import Net, run, true

ADDRESS = "127.0.0.1:9876"
CROWDED_S = 60


class Load:
    """Sends at a steady rate, each send a task of its own, and counts what became of them."""

    def __init__(self, producer: Producer, key: str | None, each_s: float) -> None:
        self._producer = producer
        self._key = key
        self._each_s = each_s
        self.count = int(CROWDED_S / each_s)
        self.acknowledged_s: list[float] = []
        self.failures: list[BaseException] = []

    async def run(self) -> None:
        tasks = []
        for number in range(self.count):
            tasks.append(asyncio.get_running_loop().create_task(self._send(number)))
            await asyncio.sleep(self._each_s)
        await asyncio.gather(*tasks)

    async def _send(self, number: int) -> None:
        message = Message("T", b"%s:%d" % ((self._key or "-").encode(), number))
        try:
            await self._producer.send(message, ordering_key=self._key)
            self.acknowledged_s.append(asyncio.get_running_loop().time())
        except SendError as error:
            self.failures.append(error)


def numbers_of(broker: Broker, key: bytes) -> list[int]:
    bodies = [body for queue in broker.stored.values() for body in queue]
    return [int(body.split(b":")[1]) for body in bodies if body.startswith(key + b":")]


def test_a_key_beyond_its_capacity_harms_nobody_else() -> None:
    """Its round trip takes 100 ms, so it takes ten a second, and twenty are offered."""

    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        net.round_trip_s = 0.1
        begun_s = asyncio.get_running_loop().time()
        async with Producer(ADDRESS) as producer:
            # Between the others there is time in which nothing at all comes.
            crowded, others = Load(producer, "hot", 0.05), Load(producer, None, 0.3)
            await asyncio.gather(crowded.run(), others.run())
        assert others.failures == []
        assert len(others.acknowledged_s) == others.count
        # One connection from the first send to the last, and no copy of anything.
        assert len(net.connected) == 1
        assert set(broker.copies.values()) == {1}
        # The key itself keeps its capacity to the end, in order, and refuses what is too much.
        for second in range(2, CROWDED_S):
            of_second = [s for s in crowded.acknowledged_s if second <= s - begun_s < second + 1]
            assert len(of_second) >= 8, second
        assert crowded.failures and {type(error) for error in crowded.failures} == {LaneFullError}
        numbers = numbers_of(broker, b"hot")
        assert numbers == sorted(numbers) and len(numbers) == len(crowded.acknowledged_s)

    run(scenario)


def test_a_refusal_says_what_the_key_takes_and_comes_at_once() -> None:
    async def scenario(net: Net) -> None:
        net.listen(ADDRESS)
        net.round_trip_s = 0.1
        loop = asyncio.get_running_loop()
        async with Producer(ADDRESS, config=ProducerConfig(timeout_s=4.0)) as producer:
            sends = [
                loop.create_task(producer.send(Message("T", b"x"), ordering_key="hot"))
                for _ in range(45)
            ]
            await true(lambda: sends[2].done())
            before_s = loop.time()
            with pytest.raises(LaneFullError) as caught:
                await producer.submit(Message("T", b"y"), ordering_key="hot")
            assert loop.time() == before_s
            assert (caught.value.attempts, caught.value.retriable) == (0, True)
            assert caught.value.ordering_key == "hot"
            assert "'hot'" in str(caught.value) and "0.100 s" in str(caught.value)
            assert "timeout_s, 4 s" in str(caught.value)
            # Another key has all its room, and so has this one later.
            await producer.send(Message("T", b"z"), ordering_key="cold")
            await asyncio.gather(*sends)
            await producer.send(Message("T", b"z"), ordering_key="hot")

    run(scenario)


def test_who_submits_one_after_the_other_waits_instead() -> None:
    """A program that sends a file with one key is slowed down to what the key takes."""

    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        net.round_trip_s = 0.1
        async with Producer(ADDRESS) as producer:
            futures = [
                await producer.submit(Message("T", b"k:%d" % number), ordering_key="k")
                for number in range(1000)
            ]
            await asyncio.gather(*futures)
        assert numbers_of(broker, b"k") == list(range(1000))

    run(scenario)


def test_many_sends_of_a_key_at_once_are_no_crowd_before_its_pace_is_known() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        net.round_trip_s = 0.1
        async with Producer(ADDRESS) as producer:
            loop = asyncio.get_running_loop()
            sends = [
                loop.create_task(producer.send(Message("T", b"k:%d" % n), ordering_key="k"))
                for n in range(500)
            ]
            await asyncio.gather(*sends)
        assert numbers_of(broker, b"k") == list(range(500))

    run(scenario)


def test_a_crowded_key_leaves_half_of_the_room_to_others() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        async with Producer(ADDRESS, config=ProducerConfig(in_flight_max=8)) as producer:
            await producer.send(Message("T", b"first"))
            broker.on_request = lambda link, request: request.body.startswith(b"k:")
            loop = asyncio.get_running_loop()
            crowd = [
                loop.create_task(producer.submit(Message("T", b"k:%d" % n), ordering_key="k"))
                for n in range(20)
            ]
            await true(lambda: b"k:0" in broker.copies)
            assert sum(task.done() for task in crowd) == 4
            await producer.send(Message("T", b"other"))
            broker.on_request = None
            await asyncio.gather(*(await asyncio.gather(*crowd)))
        assert numbers_of(broker, b"k")[-1] == 19

    run(scenario)


def test_close_tells_all_who_wait_before_a_lane() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        async with Producer(ADDRESS, config=ProducerConfig(in_flight_max=4)) as producer:
            await producer.send(Message("T", b"first"))
            broker.on_request = lambda link, request: request.body != b""
            loop = asyncio.get_running_loop()
            sends = [
                loop.create_task(producer.send(Message("T", b"k"), ordering_key=key))
                for key in ("k", None)
                for _ in range(20)
            ]
            await true(lambda: b"k" in broker.copies)
            await producer.close()
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert all("closed" in str(outcome) for outcome in outcomes)

    run(scenario)
