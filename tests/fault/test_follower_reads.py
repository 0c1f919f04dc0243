"""Followers are asked for offsets the moment after these were answered as stored."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from ledgermq.cli.remote import Remote
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import KVTable
from tests.e2e.wire_client import WireClient
from tests.fault.committed_state import GROUP, QUEUES, Leader, serves
from tests.fault.up_group import TOPIC, addresses, small_group, wait_until_whole
from tests.waiting import wait_until

_QUERY = RequestCode.QUERY_CONSUMER_OFFSET.value
_OFFSET = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
_ROUNDS = 20


def test_followers_tell_what_was_stored_before_they_were_asked(tmp_path: Path) -> None:
    """So does a member that led before: a consumer's route may name it for half a minute."""
    with small_group(tmp_path) as group, Remote(group.name_server) as remote:
        wait_until_whole(group)
        node = group.wait_for_leader()
        before = Leader(remote, node["address"])
        before.make_topic(TOPIC, QUEUES)
        _commit_and_ask(before, addresses(group), base=0)
        group.signal(signal.SIGSTOP, node)
        try:
            after = Leader(remote, group.wait_for_leader(not_pid=node["pid"])["address"])
            wait_until(lambda: serves(after), what="the next leader")
        finally:
            group.signal(signal.SIGCONT, node)
        wait_until_whole(group)
        _commit_and_ask(after, addresses(group), base=1000)
        told = remote.call(before.address, RequestCode.GET_BROKER_RUNTIME_INFO).body
        text = KVTable.decode(told).table["ledgerFollowerReads"]
        assert int(text.split()[0]) >= _ROUNDS, text


def _commit_and_ask(leader: Leader, members: list[str], base: int) -> None:
    """Each offset is answered as stored; then all are asked at once, before they hear of it."""
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(address)) for address in members]
        for number in range(base, base + _ROUNDS):
            leader.commit(0, number)
            for client in clients:
                client.ask_later(_QUERY, _OFFSET)
            answers = [client.read() for client in clients]
            told = [None if answer is None else answer.ext_fields for answer in answers]
            assert told == [{"offset": str(number)}] * len(clients), (number, members)
