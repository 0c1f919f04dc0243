"""Three brokers whose leader is killed while messages wait: each is delivered, and once.

On a starved machine the leadership may also move by itself at any moment: every step asks whoever
leads, and a message whose send was not acknowledged may be there or not, but once at most.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode
from tests.e2e.test_broker_group import SETTINGS, Group
from tests.e2e.wire_client import WireClient, end_fields, half_fields
from tests.processes import LiveProgram
from tests.waiting import wait_until

# Waits are long, for a starved machine; several may follow each other.
pytestmark = pytest.mark.timeout(300)
_DELAYED_COUNT = 600
_TRANSACTIONS_COUNT = 40
# A producer that heard nothing for so long looks whether all is done, or another member leads.
_ASKED_AGAIN_S = 2.0


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


def bodies(group: Group, topic: str) -> Counter[bytes]:
    """What stands in queue 0 of the leader of the moment."""

    def read() -> list[bytes] | None:
        with contextlib.suppress(OSError), WireClient(serving(group).address) as client:
            return [b"", *(record.body for record in client.read_queue(topic, 0))]
        return None

    found = Counter(wait_until(read, what=f"the messages of {topic}") or ())
    del found[b""]
    return found


class Sent:
    """What was sent to whoever leads."""

    def __init__(self, group: Group, topic: str) -> None:
        self._group = group
        self._topic = topic
        # Body -> fields of the answer.
        self.acked: dict[bytes, dict[str, str]] = {}
        self.unknown: set[bytes] = set()

    def send(self, count: int, fields: Callable[[int], Mapping[str, str]]) -> None:
        """Sends until so many more are acknowledged; each try has a body of its own."""
        wanted = len(self.acked) + count

        def is_done() -> bool:
            with contextlib.suppress(OSError), WireClient(serving(self._group).address) as client:
                while len(self.acked) < wanted:
                    if not self._send_one(client, fields):
                        break
            return len(self.acked) >= wanted

        wait_until(is_done, what=f"{count} messages in {self._topic}", deadline_s=60)

    def _send_one(self, client: WireClient, fields: Callable[[int], Mapping[str, str]]) -> bool:
        number = len(self.acked) + len(self.unknown)
        body = b"%04d" % number
        self.unknown.add(body)
        answer = client.send(self._topic, 0, body, **fields(number))
        if answer.code != 0:
            return False
        self.unknown.remove(body)
        self.acked[body] = answer.ext_fields or {}
        return True

    def check(self) -> None:
        """Waits until all that was acknowledged is there; it is there once, and nothing else."""
        wait_until(
            lambda: self.acked.keys() <= bodies(self._group, self._topic).keys(),
            what="all that was acknowledged",
            deadline_s=60,
        )
        found = bodies(self._group, self._topic)
        assert set(found.values()) == {1}
        assert found.keys() - self.acked.keys() <= self.unknown


def test_delayed_messages_are_delivered_once_through_a_killed_leader(
    group: Group,
) -> None:
    group.wait_until_all_count()
    sent = Sent(group, "Late")
    sent.send(_DELAYED_COUNT, lambda number: {"properties": f"DELAY\x01{1 + number % 2}"})
    wait_until(lambda: bodies(group, "Late"), what="the first delivery")
    first_number = group.leader()
    group.members[first_number].kill()
    sent.check()
    # All members hear of the progress; whoever leads next delivers nothing again.
    with ExitStack() as stack:
        group.start(first_number, stack)
        group.wait_until_all_count()
        serving(group).kill()
        sent.send(1, lambda number: {"properties": "DELAY\x011"})
        sent.check()


def test_transactions_end_once_through_a_killed_leader(group: Group) -> None:
    """Ends that are lost are asked for by the new leader; what ended stays ended."""
    group.wait_until_all_count()
    sent = Sent(group, "Paid")

    def half(number: int) -> dict[str, str]:
        return half_fields("tx", time.time_ns() // 1_000_000, UNIQ_KEY=f"{number:032}")

    sent.send(_TRANSACTIONS_COUNT, half)
    halves = list(sent.acked.values())
    # What the leader does not take, another one asks about.
    with contextlib.suppress(OSError), WireClient(serving(group).address) as client:
        for fields in halves[::2]:
            client.ask(RequestCode.END_TRANSACTION.value, end_fields(fields, "tx", 8))
    serving(group).kill()

    def are_all_paid() -> bool:
        with contextlib.suppress(OSError):
            answer_questions(serving(group).address)
        return sent.acked.keys() <= bodies(group, "Paid").keys()

    wait_until(are_all_paid, what="the end of all transactions", deadline_s=90)
    sent.check()


def answer_questions(address: str) -> None:
    """Is a producer that commits whatever it is asked about, until it is asked no more."""
    with WireClient(address, _ASKED_AGAIN_S) as producer, WireClient(address) as client:
        beat = {"clientID": "p", "producerDataSet": [{"groupName": "tx"}], "consumerDataSet": []}
        producer.ask(RequestCode.HEART_BEAT.value, None, json.dumps(beat).encode())
        while (asked := producer.read()) is not None:
            if asked.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            assert asked.ext_fields is not None
            copy = {
                "queueOffset": asked.ext_fields["tranStateTableOffset"],
                "msgId": asked.ext_fields["offsetMsgId"],
            }
            client.ask(RequestCode.END_TRANSACTION.value, end_fields(copy, "tx", 8))
