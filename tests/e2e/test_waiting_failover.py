"""Three brokers whose leader is killed while messages wait: each is delivered, and once."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode
from tests.e2e.live_program import LiveProgram
from tests.e2e.test_broker_group import SETTINGS, Group
from tests.e2e.wire_client import WireClient, end_fields, half_fields
from tests.waiting import wait_until

_DELAYED_COUNT = 600
_TRANSACTIONS_COUNT = 40


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    settings = (
        *SETTINGS,
        "messageDelayLevel=1s 2s",
        "transactionCheckInterval=300",
        "transactionTimeOut=0",
        "transactionCheckMax=1000",
    )
    with ExitStack() as stack:
        members = Group(tmp_path, settings)
        for number in range(3):
            members.start(number, stack)
        yield members


def serving(group: Group) -> LiveProgram:
    return group.members[group.leader()]


def bodies(address: str, topic: str) -> Counter[bytes]:
    with WireClient(address) as client:
        return Counter(record.body for record in client.read_queue(topic, 0))


def test_delayed_messages_are_delivered_once_through_a_killed_leader(
    group: Group,
) -> None:
    leader = serving(group)
    group.wait_until_all_count()
    sent = [b"%04d" % number for number in range(_DELAYED_COUNT)]
    with WireClient(leader.address) as client:
        for number, body in enumerate(sent):
            level = 1 + number % 2
            assert client.send("Late", 0, body, properties=f"DELAY\x01{level}").code == 0
        wait_until(lambda: len(client.pull("Late", 0, 0)) > 0, what="the first delivery")
    leader.kill()
    second = serving(group)
    assert second.pid != leader.pid
    wait_until(lambda: len(bodies(second.address, "Late")) == _DELAYED_COUNT, what="all deliveries")
    # All members hear of the progress; whoever leads next delivers nothing again.
    [first_number] = [n for n, member in group.members.items() if not member.is_running]
    with ExitStack() as stack:
        group.start(first_number, stack)
        wait_until(
            lambda: group.members[first_number].status.get("role") == "FOLLOWER",
            what="the killed member as a follower",
        )
        group.wait_until_all_count()
        second.kill()
        third = serving(group)
        with WireClient(third.address) as client:
            assert client.send("Late", 0, b"after", properties="DELAY\x011").code == 0
            wait_until(
                lambda: b"after" in bodies(third.address, "Late"), what="a delivery of the third"
            )
        assert bodies(third.address, "Late") == Counter([*sent, b"after"])


def test_transactions_end_once_through_a_killed_leader(group: Group) -> None:
    """Ends that are lost are asked for by the new leader; what ended stays ended."""
    group.wait_until_all_count()
    leader = serving(group)
    with WireClient(leader.address) as client:
        halves = []
        for number in range(_TRANSACTIONS_COUNT):
            now_ms = time.time_ns() // 1_000_000
            answer = client.send("Paid", 0, b"%02d" % number, **half_fields("tx", now_ms))
            assert answer.code == 0 and answer.ext_fields is not None
            halves.append(answer.ext_fields)
        for half in halves[::2]:
            assert (
                client.ask(RequestCode.END_TRANSACTION.value, end_fields(half, "tx", 8)).code == 0
            )
    leader.kill()
    second = serving(group)
    with WireClient(second.address) as producer, WireClient(second.address) as client:
        beat = {"clientID": "p", "producerDataSet": [{"groupName": "tx"}], "consumerDataSet": []}
        answer = producer.ask(RequestCode.HEART_BEAT.value, None, json.dumps(beat).encode())
        assert answer.code == 0
        answered = 0
        while answered < _TRANSACTIONS_COUNT // 2:
            asked = producer.read()
            assert asked is not None and asked.ext_fields is not None
            if asked.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            copy = {
                "queueOffset": asked.ext_fields["tranStateTableOffset"],
                "msgId": asked.ext_fields["offsetMsgId"],
            }
            answer = client.ask(RequestCode.END_TRANSACTION.value, end_fields(copy, "tx", 8))
            assert answer.code == 0
            answered = len(bodies(second.address, "Paid")) - _TRANSACTIONS_COUNT // 2
        assert bodies(second.address, "Paid") == Counter(
            b"%02d" % number for number in range(_TRANSACTIONS_COUNT)
        )
