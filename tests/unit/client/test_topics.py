"""Several topics and patterns: what is wanted, and how a push consumer follows."""

import asyncio
import re
from collections.abc import Sequence

import pytest

from ledgermq.client import (
    ClientConfig,
    ConfigError,
    ConsumerConfig,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    UnreachableError,
)
from ledgermq.client.config import Mode
from ledgermq.client.subscription import Expression
from ledgermq.client.topics import Topics, WantedTopics
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.route import TopicList
from tests.unit.client.virtual_broker import Broker, Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


@pytest.mark.parametrize(
    ("topics", "wanted"),
    [
        ("a", {"a": "x"}),
        (["a", "b", "a"], {"a": "x", "b": "x"}),
        (("a",), {"a": "x"}),
    ],
)
def test_names_share_the_tags(topics: Topics, wanted: dict[str, str]) -> None:
    found = WantedTopics(topics, "x", None).by_name
    assert {name: expression.text for name, expression in found.items()} == wanted


def test_each_topic_may_have_its_own_tags() -> None:
    found = WantedTopics({"a": "x || y", "b": "*"}, "*", None).by_name
    assert found == {"a": Expression("x || y"), "b": Expression("*")}
    with pytest.raises(ConfigError, match="for each topic"):
        WantedTopics({"a": "x"}, "z", None)


@pytest.mark.parametrize("topics", ["", [], [""], {}, ["a", ""], [f"t{n}" for n in range(1001)]])
def test_no_topic_or_too_many_are_refused(topics: Topics) -> None:
    with pytest.raises(ConfigError, match="allowed: 1 to 1000|must not be empty"):
        WantedTopics(topics, "*", None)


def test_pattern_takes_whole_names_of_its_own_namespace_and_none_of_the_system() -> None:
    listed = ["o-1", "xo-1", "o-1x", "shop%o-2", "bank%o-3", "%RETRY%o-4", "rmq_sys_o-5", "TBW102"]
    wanted = WantedTopics(re.compile("o-[0-9]"), "*", None)
    assert wanted.take(listed, "") and set(wanted.by_name) == {"o-1"}
    assert not wanted.take(listed, "")
    wanted = WantedTopics(re.compile("o-.*"), "*", None)
    assert wanted.take(listed, "shop") and set(wanted.by_name) == {"o-2"}
    wanted = WantedTopics(re.compile(".*"), "*", None)
    with pytest.raises(ConfigError, match="1001 topics match"):
        wanted.take([f"t{number}" for number in range(1001)], "")
    assert not wanted.by_name


def test_topic_is_given_up_when_several_lists_lack_it() -> None:
    wanted = WantedTopics(re.compile("."), "*", None)
    wanted.take(["a", "b"], "")
    assert not wanted.take([], "") and not wanted.take(["b"], "") and wanted.take(["b"], "")
    assert set(wanted.by_name) == {"b"}
    # What is there again begins anew.
    assert wanted.take(["a", "b"], "") and not wanted.take(["b"], "")
    assert not wanted.take(["a", "b"], "") and not wanted.take(["b"], "")


class Listing:
    """A name server that lists topics as the test says, and what a broker heard last."""

    def __init__(self, names: Broker, broker: Broker) -> None:
        self.topics: list[str] = []
        self.refusal = 0
        self.subscribed: set[str] = set()
        names.on_request = self._take
        broker.on_request = self._hear

    def _take(self, link: Link, request: RemotingCommand) -> bool:
        if request.code != RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return False
        body = TopicList(topic_list=self.topics).encode()
        link.answer(request.response(self.refusal, body=body))
        return True

    def _hear(self, link: Link, request: RemotingCommand) -> bool:
        if request.code == RequestCode.HEART_BEAT:
            for member in HeartbeatData.decode(request.body).consumer_data_set:
                self.subscribed = {one.topic for one in member.subscription_data_set}
        return False


async def listing(net: Net) -> Listing:
    broker = net.cluster(NAMES, BROKER)
    return Listing(net.brokers[NAMES], broker)


async def send(*topics: str) -> None:
    async with Producer(NAMES) as producer:
        for topic in topics:
            await producer.send(Message(topic, topic.encode()))


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_consumer_of_several_topics_gets_all_of_them(mode: Mode) -> None:
    async def scenario(net: Net) -> None:
        heard = await listing(net)
        came: list[bytes] = []

        async def listen(message: ReceivedMessage) -> None:
            came.append(message.body)

        async with PushConsumer(
            NAMES, "g", ["a", "b"], listen, start="first", mode=mode
        ) as consumer:
            assert consumer.topics == ["a", "b"]
            await true(lambda: len(consumer.queues()) == 8)
            await send("a", "b", "c")
            await true(lambda: sorted(came) == [b"a", b"b"])
        assert heard.subscribed == {"a", "b", "%RETRY%g"}

    run(scenario)


def test_consumer_of_a_pattern_finds_new_topics_and_misses_no_message() -> None:
    async def scenario(net: Net) -> None:
        heard = await listing(net)
        heard.topics = ["shop-1", "other"]
        await send("shop-1", "other")
        came: list[bytes] = []

        async def listen(message: ReceivedMessage) -> None:
            came.append(message.body)

        async with PushConsumer(NAMES, "g", re.compile("shop-.*"), listen) as consumer:
            await true(lambda: len(consumer.queues()) == 4)
            assert consumer.topics == ["shop-1"]
            # Sent before it is found; the group begins at the end otherwise.
            await send("shop-2")
            heard.topics.append("shop-2")
            heard.refusal = 1
            await asyncio.sleep(30)
            assert consumer.topics == ["shop-1"]
            heard.refusal = 0
            await true(lambda: came == [b"shop-2"])
            assert heard.subscribed == {"shop-1", "shop-2", "%RETRY%g"}
            heard.topics.remove("shop-1")
            await true(lambda: consumer.topics == ["shop-2"])
            await true(lambda: len(consumer.queues()) == 4)
            assert {queue.topic for queue in consumer.queues()} == {"shop-2"}
            assert heard.subscribed == {"shop-2", "%RETRY%g"}

    run(scenario)


def test_consumer_of_a_pattern_says_when_no_name_server_answers() -> None:
    async def scenario(net: Net) -> None:
        with pytest.raises(UnreachableError):
            await PushConsumer(NAMES, "g", re.compile(".*")).__aenter__()

    run(scenario)


def queues_of(told: Sequence[tuple[str, list[str]]], what: str) -> list[str]:
    return sorted(name for kind, names in told if kind == what for name in names)


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_program_is_told_of_queues_that_come_and_go(mode: Mode) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        told: list[tuple[str, list[str]]] = []
        consumer: list[PushConsumer] = []

        async def assigned(queues: list[object]) -> None:
            # Nothing of them has come yet.
            assert not consumer[0].pending_count
            told.append(("assigned", [str(queue) for queue in queues]))

        async def revoked(queues: list[object]) -> None:
            owned = [one for one in broker.disk.locks if one.topic == "T"]
            told.append(("revoked", [str(queue) for queue in queues]))
            if mode == "orderly":
                assert set(queues) <= set(owned)

        async def listen(message: ReceivedMessage) -> None: ...

        await send("T", "T", "T", "T")
        config = ConsumerConfig(rebalance_interval_s=1.0, client=ClientConfig())
        made = PushConsumer(
            NAMES, "g", "T", listen, start="first", mode=mode,
            on_assigned=assigned, on_revoked=revoked, config=config,
        )  # fmt: skip
        consumer.append(made)
        async with made:
            await true(lambda: len(made.queues()) == 4)
            everything = [str(queue) for queue in made.queues()]
            assert told == [("assigned", everything)]
            await true(lambda: not made.pending_count)
            # Another member, whose id sorts behind all addresses.
            broker.members["g"].add("~other")
            await true(lambda: len(made.queues()) == 2)
            await true(lambda: len(queues_of(told, "revoked")) == 2)
            assert set(queues_of(told, "revoked")).isdisjoint(map(str, made.queues()))
        assert queues_of(told, "revoked") == sorted(everything)
        # What a group failed is the consumer's own business.
        assert "RETRY" not in str(told)

    run(scenario)


def test_program_that_fails_to_hear_of_its_queues_gets_them_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)

        async def fail(queues: list[object]) -> None:
            raise KeyError("unforeseen")

        async def listen(message: ReceivedMessage) -> None: ...

        async with PushConsumer(
            NAMES, "g", "T", listen, on_assigned=fail, on_revoked=fail
        ) as consumer:
            await true(lambda: len(consumer.queues()) == 4)

    run(scenario)
    assert caplog.text.count("KeyError: 'unforeseen'") == 2
