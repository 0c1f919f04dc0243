"""A leader that had no time is asked, when it has, for what its successor knows better."""

from __future__ import annotations

import signal
from pathlib import Path

from ledgermq.cli.remote import Remote
from ledgermq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient
from tests.fault.committed_state import BROKER, GROUP, QUEUES, Leader, serves
from tests.fault.up_group import TOPIC, small_group, wait_until_whole
from tests.waiting import wait_until

_QUERY, _LOCK = RequestCode.QUERY_CONSUMER_OFFSET.value, RequestCode.LOCK_BATCH_MQ.value
_OFFSET = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
_QUEUE = MessageQueue(TOPIC, BROKER, 0)
_ASKED = LockBatchRequestBody(GROUP, "first", [_QUEUE]).encode()


def test_what_a_deposed_leader_is_asked_it_does_not_answer_from_what_it_knew(
    tmp_path: Path,
) -> None:
    """The questions lie in its sockets, beside what its peers have told it: it reads them first."""
    with small_group(tmp_path) as group, Remote(group.name_server) as remote:
        wait_until_whole(group)
        for number in range(2):
            _ask_deposed(group, remote, 1000 * number)


def _ask_deposed(group: UpCluster, remote: Remote, base: int) -> None:
    node = group.wait_for_leader()
    before = Leader(remote, node["address"])
    before.make_topic(TOPIC, QUEUES)
    before.commit(0, base + 5)
    assert before.lock(0, "first")
    with WireClient(node["address"]) as client:
        # It answers while it leads.
        assert client.ask(_QUERY, _OFFSET).ext_fields == {"offset": str(base + 5)}
        assert _held(client.ask(_LOCK, None, _ASKED)) == [_QUEUE]
        group.signal(signal.SIGSTOP, node)
        try:
            after = Leader(remote, group.wait_for_leader(not_pid=node["pid"])["address"])
            wait_until(lambda: serves(after), what="the next leader")
            after.commit(0, base + 9)
            body = UnlockBatchRequestBody(GROUP, "first", [_QUEUE]).encode()
            remote.call(after.address, RequestCode.UNLOCK_BATCH_MQ, body=body)
            assert after.lock(0, "second")
            asked = client.ask_later(_QUERY, _OFFSET)
            locked = client.ask_later(_LOCK, None, _ASKED)
        finally:
            group.signal(signal.SIGCONT, node)
        answers: dict[int, RemotingCommand] = {}
        while locked not in answers:
            answer = client.read()
            assert answer is not None
            answers[answer.opaque] = answer
    # No answer is one, too: the consumer asks again. An error would have it begin at the end.
    if asked in answers:
        assert answers[asked].ext_fields == {"offset": str(base + 9)}
    assert answers[locked].code == ResponseCode.SERVICE_NOT_AVAILABLE, answers[locked]
    wait_until_whole(group)
    remote.call(
        after.address,
        RequestCode.UNLOCK_BATCH_MQ,
        body=UnlockBatchRequestBody(GROUP, "second", [_QUEUE]).encode(),
    )


def _held(answer: RemotingCommand) -> list[MessageQueue]:
    return list(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
