"""Tries of a send: how long each waits, what a late answer is good for, and when none begins."""

import asyncio
import gc

import pytest

from ledgermq.client import ClientConfig, Message, Producer, ProducerConfig, SendError
from ledgermq.client.send import Send
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.route import BrokerData, QueueData, TopicRouteData
from tests.unit.client.virtual_broker import SENDS, Broker, Link
from tests.unit.client.virtual_net import Net, run, true

ADDRESS = "127.0.0.1:9876"


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Slow:
    """Stores at once, and answers sends after as long as the test says."""

    def __init__(self, broker: Broker, delay_s: float) -> None:
        self._broker = broker
        self.delay_s = delay_s
        # Body and time of each send.
        self.came: list[tuple[bytes, float]] = []
        broker.on_request = self._take

    def _take(self, link: Link, request: RemotingCommand) -> bool:
        if request.code not in SENDS:
            return False
        self.came.append((request.body, now_s()))
        answer = self._broker.store(request)
        asyncio.get_running_loop().call_later(self.delay_s, link.answer, answer)
        return True


def test_late_answer_acknowledges_a_send_that_waits_for_its_next_try() -> None:
    async def scenario(net: Net) -> None:
        slow = Slow(net.listen(ADDRESS), 3.005)
        async with Producer(ADDRESS) as producer:
            result = await producer.send(Message("T", b"x"))
            assert result.queue_offset == 0
            await asyncio.sleep(30)
        assert len(slow.came) == 1 and len(net.connected) == 1

    run(scenario)


def test_late_answer_of_the_first_try_counts_while_a_copy_is_on_its_way() -> None:
    async def scenario(net: Net) -> None:
        slow = Slow(net.listen(ADDRESS), 4.0)
        begun_s = now_s()
        async with Producer(ADDRESS) as producer:
            await producer.send(Message("T", b"x"))
            assert now_s() - begun_s == pytest.approx(4.0, abs=0.1)
            assert len(slow.came) == 2
            # What the copy is answered then disturbs nobody.
            await asyncio.sleep(30)
            slow.delay_s = 0
            await producer.send(Message("T", b"y"))
        assert len(slow.came) == 3 and len(net.connected) == 1

    run(scenario)


def test_next_of_a_key_never_overtakes_a_copy_of_the_one_before() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        Slow(broker, 4.0)
        async with Producer(ADDRESS, config=ProducerConfig(timeout_s=60.0)) as producer:
            futures = [
                await producer.submit(Message("T", b"%d" % number), ordering_key="k")
                for number in range(5)
            ]
            await asyncio.gather(*futures)
        (stored,) = [bodies for bodies in broker.stored.values() if bodies]
        assert stored == sorted(stored) and len(set(stored)) == 5

    run(scenario)


def test_slow_broker_gets_copies_ever_more_rarely() -> None:
    """It takes the sends of many, and a minute for each: copies would make it slower still."""

    async def scenario(net: Net) -> None:
        slow = Slow(net.listen(ADDRESS), 60.0)
        async with Producer(ADDRESS, config=ProducerConfig(timeout_s=120.0)) as producer:
            futures = [await producer.submit(Message("T", b"%d" % n)) for n in range(100)]
            await asyncio.gather(*futures)
        assert len(net.connected) == 1
        times = [s for body, s in slow.came if body == b"0"]
        gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
        assert [round(gap) for gap in gaps] == [3, 6, 12, 24]
        assert len(slow.came) == 500

    run(scenario)


def test_what_was_written_once_is_never_written_again() -> None:
    """Whoever sent it looks first: it may be stored, as here."""

    async def scenario(net: Net) -> None:
        slow = Slow(net.listen(ADDRESS), 1000.0)
        config = ProducerConfig(timeout_s=60.0, attempt_timeout_s=3.0, written_once=True)
        async with Producer(ADDRESS, config=config) as producer:
            with pytest.raises(SendError) as caught:
                await producer.send(Message("T", b"x"))
        assert len(slow.came) == 1 and caught.value.attempts == 1
        assert caught.value.retriable

    run(scenario)


def test_a_connection_that_is_not_there_yet_is_waited_for_all_the_same() -> None:
    async def scenario(net: Net) -> None:
        config = ProducerConfig(timeout_s=60.0, written_once=True)
        async with Producer(ADDRESS, config=config) as producer:
            sent = await producer.submit(Message("T", b"x"))
            await asyncio.sleep(2.0)
            slow = Slow(net.listen(ADDRESS), 0.0)
            await sent
        assert len(slow.came) == 1

    run(scenario)


def test_no_try_begins_with_less_time_than_an_answer_needs() -> None:
    async def scenario(net: Net) -> None:
        slow = Slow(net.listen(ADDRESS), 1000.0)
        begun_s = now_s()
        config = ProducerConfig(timeout_s=10.0, attempt_timeout_s=3.2)
        async with Producer(ADDRESS, config=config) as producer:
            with pytest.raises(SendError) as caught:
                await producer.send(Message("T", b"x"))
        # 3.2 s, 6.4 s, and what is left then is no time for a third.
        assert len(slow.came) == 2 and caught.value.attempts == 2
        assert now_s() - begun_s < 10.0
        assert "no answer" in str(caught.value)

    run(scenario)


def test_who_waits_behind_an_outage_and_has_no_time_left_was_never_sent() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        slow = Slow(broker, 0.0)
        async with Producer(ADDRESS, config=ProducerConfig(timeout_s=5.0)) as producer:
            await producer.send(Message("T", b"first"), ordering_key="k")
            slow.delay_s = 1000.0
            futures = [
                await producer.submit(Message("T", b"%d" % n), ordering_key="k") for n in range(3)
            ]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [getattr(outcome, "attempts", None) for outcome in outcomes] == [2, 0, 0]
        assert "no time was left when its turn came" in str(outcomes[1])
        assert {body for body, _ in slow.came} == {b"first", b"0"}

    run(scenario)


@pytest.mark.parametrize("idle_s", [0.0, 600.0])
def test_send_leaves_a_silent_leader_for_the_next_one(idle_s: float) -> None:
    async def scenario(net: Net) -> None:
        names, old, new = (net.listen(f"127.0.0.1:{port}") for port in (9876, 1, 2))
        names.leader = old.address
        async with Producer(names.address) as producer:
            await producer.send(Message("T", b"x"))
            await asyncio.sleep(idle_s)
            net.silent.add(old.address)
            begun_s = now_s()
            future = await producer.submit(Message("T", b"y"))
            await asyncio.sleep(1.6)
            names.leader = new.address
            await future
            assert now_s() - begun_s <= 3.1
        assert new.copies == {b"y": 1}

    run(scenario)


def test_connection_to_a_broker_that_is_only_busy_stays() -> None:
    """It answers no send for a minute, but lives: each of its heart beats is answered."""

    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)
        broker.on_request = lambda link, request: request.code in SENDS
        config = ProducerConfig(timeout_s=60.0, client=ClientConfig(silence_max_s=1.0))
        async with Producer(ADDRESS, config=config) as producer:
            with pytest.raises(SendError):
                await producer.send(Message("T", b"x"))
        assert len(net.connected) == 1

    run(scenario)


def test_name_server_that_falls_silent_is_passed_over() -> None:
    async def scenario(net: Net) -> None:
        first, second = net.listen("127.0.0.1:1"), net.listen("127.0.0.1:2")
        first.leader = second.leader = "127.0.0.1:2"
        async with Producer(f"{first.address};{second.address}") as producer:
            await producer.send(Message("T", b"x"))
            net.silent.add(first.address)
            await producer.send(Message("U", b"y"))
            asked = first.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            await true(lambda: second.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) > 0)
            assert first.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == asked

    run(scenario)


def test_two_brokers_of_one_queue_each_get_their_turn() -> None:
    """A choice that is made anew after each wait would fall on the other broker for ever."""

    async def scenario(net: Net) -> None:
        brokers = [net.listen(f"127.0.0.1:{port}") for port in (10911, 10921)]
        name_server = net.listen(ADDRESS)
        route = TopicRouteData(
            queue_datas=[QueueData(name, 1, 1, 6) for name in ("a", "b")],
            broker_datas=[
                BrokerData("c", name, {0: broker.address})
                for name, broker in zip(("a", "b"), brokers, strict=True)
            ],
        )

        def answer(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return False
            link.answer(request.response(0, body=route.encode()))
            return True

        name_server.on_request = answer
        async with Producer(ADDRESS) as producer:
            for number in range(10):
                await producer.send(Message("T", b"%d" % number))
        assert [len(broker.copies) for broker in brokers] == [5, 5]

    run(scenario)


def test_late_answer_that_may_come_keeps_no_message_in_memory() -> None:
    """A broker that answers no send, for hours: what has failed must not add up."""
    body = b"only here"

    async def scenario(net: Net) -> None:
        net.listen(ADDRESS).on_request = lambda link, request: request.code in SENDS
        async with Producer(ADDRESS) as producer:
            with pytest.raises(SendError):
                await producer.send(Message("T", body))
            sends = [one for one in gc.get_objects() if type(one) is Send]
            assert not [one for one in sends if body in one.body]

    run(scenario)
