"""One of several broker groups answers slowly: the others keep their rate."""

import asyncio

import pytest

from ledgermq.client import Message, Producer, ProducerConfig
from ledgermq.client.selection import crowded_brokers, next_queue
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.route import BrokerData, QueueData, TopicRouteData
from tests.unit.client.virtual_broker import SENDS, Broker, Link
from tests.unit.client.virtual_net import Net, run

NAMES = "127.0.0.1:9876"
FAST, SLOW = "127.0.0.1:10911", "127.0.0.1:10921"


@pytest.mark.parametrize(
    ("waiting", "crowded"),
    [
        ({}, set()),
        ({"a": 1000}, set()),
        ({"a": 0, "b": 8}, set()),
        ({"a": 0, "b": 9}, {"b"}),
        ({"a": 100, "b": 208, "c": 209}, {"c"}),
        ({"a": 500, "b": 500}, set()),
    ],
)
def test_broker_with_far_more_waiting_requests_is_crowded(
    waiting: dict[str, int], crowded: set[str]
) -> None:
    assert crowded_brokers(waiting) == crowded


def test_crowded_broker_is_better_than_one_that_failed_or_none() -> None:
    queues = [MessageQueue("T", name, 0) for name in "abc"]
    masters = dict.fromkeys("abc", "address")
    assert next_queue(queues, masters, 0, "a", {"b"}) == queues[2]
    assert next_queue(queues, masters, 0, "a", {"b", "c"}) == queues[1]
    assert next_queue(queues, {"a": "address"}, 0, "a", {"b", "c"}) == queues[0]
    assert next_queue(queues, {}, 0, None, {"b"}) is None


def two_groups(net: Net, delay_s: float) -> tuple[Broker, Broker]:
    """A fast broker group and one that answers after a while."""
    names, fast, slow = net.listen(NAMES), net.listen(FAST), net.listen(SLOW)
    route = TopicRouteData(
        queue_datas=[QueueData(name, 4, 4, 6) for name in ("fast", "slow")],
        broker_datas=[BrokerData("C", "fast", {0: FAST}), BrokerData("C", "slow", {0: SLOW})],
    )

    def tell(link: Link, request: RemotingCommand) -> bool:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return False
        link.answer(request.response(0, body=route.encode()))
        return True

    def answer_later(link: Link, request: RemotingCommand) -> bool:
        if request.code not in SENDS:
            return False
        asyncio.get_running_loop().call_later(delay_s, link.answer, slow.store(request))
        return True

    names.on_request = tell
    slow.on_request = answer_later
    return fast, slow


def sends(broker: Broker) -> int:
    return sum(broker.count(code) for code in SENDS)


def test_slow_broker_takes_its_own_part_of_the_room_and_no_more() -> None:
    async def scenario(net: Net) -> None:
        fast, slow = two_groups(net, delay_s=2.0)
        loop = asyncio.get_running_loop()
        async with Producer(NAMES, config=ProducerConfig(in_flight_max=100)) as producer:
            begun_s = loop.time()
            futures = [await producer.submit(Message("T", b"%d" % n)) for n in range(4000)]
            # Round robin would take 40 s: the room is full of what waits for the slow one.
            assert loop.time() - begun_s < 3
            await asyncio.gather(*futures)
        assert 0 < sends(slow) < 400 and sends(fast) + sends(slow) == 4000

    run(scenario)


def test_brokers_of_one_pace_share_the_sends() -> None:
    async def scenario(net: Net) -> None:
        fast, slow = two_groups(net, delay_s=0.0)
        async with Producer(NAMES, config=ProducerConfig(in_flight_max=100)) as producer:
            await asyncio.gather(*[await producer.submit(Message("T", b"x")) for _ in range(4000)])
        assert 1500 < sends(slow) < 2500 and sends(fast) + sends(slow) == 4000

    run(scenario)


def test_broker_that_recovers_gets_its_part_again() -> None:
    async def scenario(net: Net) -> None:
        _, slow = two_groups(net, delay_s=2.0)
        async with Producer(NAMES, config=ProducerConfig(in_flight_max=100)) as producer:
            await asyncio.gather(*[await producer.submit(Message("T", b"x")) for _ in range(1000)])
            slow.on_request = None
            before = sends(slow)
            await asyncio.gather(*[await producer.submit(Message("T", b"x")) for _ in range(1000)])
            assert sends(slow) - before > 300

    run(scenario)
