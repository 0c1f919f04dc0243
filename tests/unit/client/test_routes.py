"""Routes: from a name server's answer to queues and addresses, and the cache of them."""

import asyncio

import pytest

from ledgermq.client.errors import NameServerError, NoRouteError, RefusedError, UnreachableError
from ledgermq.client.routes import RouteCache, guessed_route, queues_of, route_of
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.route import BrokerData, QueueData, TopicRouteData

DATA = TopicRouteData(
    queue_datas=[
        QueueData("b", 2, 1, 6),
        QueueData("a", 1, 2, 6),
        QueueData("read-only", 1, 1, 4),
        QueueData("gone", 4, 4, 6),
    ],
    broker_datas=[
        BrokerData("C", "b", {0: "b0:1", 1: "b1:1"}),
        BrokerData("C", "a", {1: "a1:1"}),
        BrokerData("C", "read-only", {0: "r0:1"}),
    ],
)


class ScriptedNameServers:
    """Answers by topic: a route, or a response code, or an error."""

    def __init__(self, answers: dict[str, TopicRouteData | int | Exception]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def request(self, command: RemotingCommand) -> RemotingCommand:
        assert command.ext_fields is not None
        topic = command.ext_fields["topic"]
        self.asked.append(topic)
        await asyncio.sleep(0)
        answer = self.answers.get(topic, int(ResponseCode.TOPIC_NOT_EXIST))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return command.response(answer, "because")
        return command.response(0, body=answer.encode())


def test_route_lists_queues_in_order_and_leaders() -> None:
    route = route_of("T", DATA)
    assert route.write_queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
        MessageQueue("T", "b", 0),
    )
    assert [(q.broker_name, q.queue_id) for q in route.read_queues] == [
        ("a", 0), ("b", 0), ("b", 1), ("read-only", 0),
    ]  # fmt: skip
    assert route.masters == {"b": "b0:1", "read-only": "r0:1"}
    assert route.brokers() == {"b0:1", "b1:1", "a1:1", "r0:1"}


def test_name_server_that_tells_billions_of_queues_is_not_believed() -> None:
    """Some commands made all of them, until there was no memory left."""
    assert len(queues_of("T", [("a", 2**31 - 1), ("b", 2)])) == 65_538
    many = ((f"b{number}", 2**31 - 1) for number in range(1_000_000))
    assert len(queues_of("T", many)) == 1 << 17


def test_topic_that_does_not_exist_would_get_the_queues_of_the_template() -> None:
    template = route_of("TBW102", DATA)
    guess = guessed_route("New", template, 1)
    assert guess.write_queues == (MessageQueue("New", "a", 0), MessageQueue("New", "b", 0))
    assert guess.is_guess
    assert guess.masters == template.masters


def test_producer_gets_a_guess_and_a_consumer_an_error_for_an_unknown_topic() -> None:
    async def run() -> None:
        cache = RouteCache(ScriptedNameServers({"TBW102": DATA}), 4)
        with pytest.raises(NoRouteError) as caught:
            await cache.refresh("New")
        assert (caught.value.topic, caught.value.retriable) == ("New", True)
        assert (await cache.refresh("New", may_create=True)).is_guess

    asyncio.run(run())


def test_those_who_ask_at_the_same_time_share_one_request() -> None:
    async def run() -> None:
        servers = ScriptedNameServers({"T": DATA})
        cache = RouteCache(servers, 4)
        routes = await asyncio.gather(*(cache.refresh("T") for _ in range(50)))
        assert len(servers.asked) == 1
        assert all(route is routes[0] for route in routes)
        await cache.get("T")
        assert len(servers.asked) == 1

    asyncio.run(run())


def test_failure_keeps_the_route_that_was_known() -> None:
    async def run() -> None:
        servers = ScriptedNameServers({"T": DATA})
        cache = RouteCache(servers, 4)
        known = await cache.refresh("T")
        servers.answers["T"] = UnreachableError("gone", retriable=True, broker="n:1")
        with pytest.raises(NameServerError) as caught:
            await cache.refresh("T")
        assert caught.value.retriable
        assert cache.find("T") is known
        servers.answers["T"] = int(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(RefusedError):
            await cache.refresh("T")
        assert await cache.get("T") is known

    asyncio.run(run())
