"""AdminClient, asyncio and blocking, against real brokers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ledgermq.client import (
    AdminClient,
    ClientConfig,
    ClosedError,
    ConfigError,
    ConsumerConfig,
    Message,
    NameServerError,
    NotFoundError,
    PushConsumer,
    RefusedError,
    UnreachableError,
    blocking,
)
from ledgermq.client.admin import GroupDescription
from tests.free_ports import free_ports
from tests.processes import broker, name_server
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server with two brokers."""
    folder = tmp_path_factory.mktemp("admin_client")
    with (
        name_server(folder) as address,
        broker(folder, namesrv=address) as first,
        broker(folder, namesrv=address, name="broker-b", log="b.log") as second,
    ):
        first.wait_until_serving()
        second.wait_until_serving()
        with blocking.AdminClient(address) as admin:
            wait_until(lambda: len(_leaders(admin)) == 2, what="two registered brokers")
        yield address


def _leaders(admin: blocking.AdminClient) -> list[str]:
    return [one.broker_name for one in admin.brokers() if one.is_leader]


@pytest.fixture(scope="module")
def admin(namesrv: str) -> Iterator[blocking.AdminClient]:
    with blocking.AdminClient(namesrv) as admin:
        yield admin


def _send(namesrv: str, topic: str, count: int) -> None:
    with blocking.Producer(namesrv, "pg_admin") as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


def test_brokers_tell_about_themselves(admin: blocking.AdminClient) -> None:
    brokers = admin.brokers()
    assert [(one.broker_name, one.is_leader, one.failure) for one in brokers] == [
        ("broker-a", True, None),
        ("broker-b", True, None),
    ]
    assert brokers[0].figures["ledgerRole"] == "LEADER"
    assert brokers[0].rate("putTps") is not None
    assert brokers[0].number("bootTimestamp") is not None


def test_topic_from_its_creation_to_its_end(namesrv: str, admin: blocking.AdminClient) -> None:
    admin.create_topic("ac_topic", queue_count=3)
    # It is known as soon as the call returns: a producer needs no pause.
    _send(namesrv, "ac_topic", 6)
    told = admin.describe_topic("ac_topic")
    assert (told.kind, told.message_count, told.groups) == ("normal", 6, ())
    assert [
        (one.broker_name, one.read_queue_count, one.write_queue_count, one.permission)
        for one in told.brokers
    ] == [("broker-a", 3, 3, 6), ("broker-b", 3, 3, 6)]
    assert [one.queue.broker_name for one in told.queues] == ["broker-a"] * 3 + ["broker-b"] * 3
    assert "ac_topic" in {one.name for one in admin.topics() if one.kind == "normal"}

    with pytest.raises(ConfigError, match="'ac_topic' is there already, with 3 queues on"):
        admin.create_topic("ac_topic")
    admin.update_topic("ac_topic", permission=4)

    def changed() -> bool:
        return {
            (one.permission, one.write_queue_count)
            for one in admin.describe_topic("ac_topic").brokers
        } == {(4, 3)}

    wait_until(changed, what="the new permission, and the number of queues as it was")

    admin.delete_topic("ac_topic")
    with pytest.raises(NotFoundError, match="no topic 'ac_topic'"):
        admin.describe_topic("ac_topic")


def test_lag_preview_and_reset_of_a_group_that_is_offline(
    namesrv: str, admin: blocking.AdminClient
) -> None:
    admin.create_topic("ac_reset", queue_count=1)
    _send(namesrv, "ac_reset", 10)
    with blocking.PullConsumer(namesrv, "ac_group") as consumer:
        for queue in consumer.queues("ac_reset"):
            consumer.commit(queue, 2)
    lag = admin.lag("ac_group")
    assert (lag.behind, [one.behind for one in lag.queues]) == (6, [3, 3])
    assert ("ac_group", 6) in [(one.group, one.behind) for one in admin.lags()]
    summary = next(one for one in admin.groups() if one.name == "ac_group")
    assert (summary.topics, summary.member_count, summary.behind) == (("ac_reset",), 0, 6)

    preview = admin.preview_reset("ac_group", "ac_reset", "first")
    assert [(one.before, one.after, one.repeated_count) for one in preview] == [(2, 0, 2)] * 2
    # Nothing has changed.
    assert admin.lag("ac_group").behind == 6
    assert [
        (one.before, one.after)
        for one in admin.reset_offsets("ac_group", "ac_reset", "last", forward=False)
    ] == [(2, 2)] * 2
    assert admin.lag("ac_group").behind == 6

    changes = admin.reset_offsets("ac_group", "ac_reset", "last")
    assert [(one.before, one.after) for one in changes] == [(2, 5)] * 2
    assert admin.lag("ac_group", topic="ac_reset").behind == 0
    changes = admin.reset_offsets("ac_group", "ac_reset", datetime(2020, 1, 1, tzinfo=UTC))
    assert [(one.before, one.after) for one in changes] == [(5, 0)] * 2

    copied = admin.copy_offsets("ac_group", "ac_other", "ac_reset")
    assert [(one.before, one.after) for one in copied] == [(0, 0)] * 2
    admin.delete_group("ac_group")
    with pytest.raises(NotFoundError, match="no broker has a group 'ac_group'"):
        admin.lag("ac_group")


def _held(told: GroupDescription, topic: str) -> int:
    """Queues of a topic that the members have; those of their retry topic come and count apart."""
    return sum(held.queue.topic == topic for one in told.members for held in one.queues)


async def _described(
    admin: AdminClient, is_so: Callable[[GroupDescription], bool]
) -> GroupDescription:
    """Asks for the live group until something is so; it is known when its heart beat came."""
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(NotFoundError):
                told = await admin.describe_group("ac_live_group")
                if is_so(told):
                    return told


def test_group_with_members_tells_its_state_and_what_is_wrong(namesrv: str) -> None:
    async def go() -> None:
        async with AdminClient(namesrv) as admin:
            await admin.create_topic("ac_live", queue_count=2)
            quick = ConsumerConfig(rebalance_interval_s=0.2)

            def member(tags: str) -> PushConsumer:
                return PushConsumer(
                    namesrv,
                    "ac_live_group",
                    "ac_live",
                    lambda message: None,
                    tags=tags,
                    config=quick,
                )

            async with member("*"):
                told = await _described(
                    admin,
                    # Both brokers know it, each from a heart beat of its own.
                    lambda told: (
                        _held(told, "ac_live") == 4
                        and len(told.settings) == 2
                        and not told.problems
                    ),
                )
                assert told.mode == "CLUSTERING"
                assert set(told.settings) == {"broker-a", "broker-b"}
                assert dict(told.members[0].subscriptions or {})["ac_live"] == "*"
                changes = await admin.reset_offsets("ac_live_group", "ac_live", "first")
                assert len(changes) == 4
                async with member("TagA"):
                    await _described(
                        admin,
                        lambda told: any(
                            "different things" in one and "ac_live 'TagA'" in one
                            for one in told.problems
                        ),
                    )

    asyncio.run(go())


def test_what_cannot_be_asked_says_why(namesrv: str, admin: blocking.AdminClient) -> None:
    with pytest.raises(NotFoundError, match="no cluster 'nowhere'; known: DefaultCluster"):
        admin.create_topic("x", cluster="nowhere")
    with pytest.raises(RefusedError, match="queues|QueueNums") as caught:
        admin.create_topic("x", queue_count=-1)
    assert not caught.value.retriable
    with pytest.raises(ConfigError, match="has no zone"):
        admin.preview_reset("g", "t", datetime(2020, 1, 1))
    with pytest.raises(ConfigError, match="'first', 'last', a datetime"):
        admin.preview_reset("g", "t", "newest")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="shop%orders"):
        AdminClient(namesrv, config=ClientConfig(namespace="shop"))
    closed = AdminClient(namesrv)
    with pytest.raises(ClosedError):
        asyncio.run(closed.topics())
    (port,) = free_ports(1)
    quick = ClientConfig(connect_timeout_s=1, request_timeout_s=1)
    with (
        blocking.AdminClient(f"127.0.0.1:{port}", config=quick) as lost,
        pytest.raises(NameServerError, match="no name server answers"),
    ):
        lost.topics()


def test_a_broker_that_is_silent_is_listed_with_the_reason(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(name_server(tmp_path))
        program = stack.enter_context(broker(tmp_path, namesrv=address))
        program.wait_until_serving()
        patient = stack.enter_context(blocking.AdminClient(address))
        wait_until(lambda: _leaders(patient) == ["broker-a"], what="a registered broker")
        quick = ClientConfig(request_timeout_s=1)
        admin = stack.enter_context(blocking.AdminClient(address, config=quick))
        os.kill(program.pid, signal.SIGSTOP)
        stack.callback(os.kill, program.pid, signal.SIGCONT)
        (state,) = admin.brokers()
        assert state.failure is not None and "no answer" in state.failure
        assert state.figures == {}
        # Nobody is left out of a sum: who cannot be asked makes it fail.
        with pytest.raises(UnreachableError) as caught:
            admin.lags()
        assert caught.value.retriable
