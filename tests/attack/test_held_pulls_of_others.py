"""Thousands of costly held pulls that one message wakes do not hold up another client's pull.

Judged by counts: how many of theirs were answered before the one of the client beside.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.framing import FrameDecoder
from tests.attack.floods import COSTLY_CONDITION
from tests.attack.victim import Victim
from tests.e2e.wire_client import pull_fields, send_fields
from tests.waiting import wait_until

_CONNECTIONS = 10
_QUEUES = 8
_PULLS_EACH = 100
# Another address than that of the client beside: here nobody has an account.
_OTHER_ADDRESS = "127.0.0.2"
_HELD = "6"
_WAIT_MS = "100000"


class Crowd:
    """Connections of another address whose pulls are held."""

    def __init__(self, victim: Victim, stack: ExitStack) -> None:
        host, _, port = victim.address.rpartition(":")
        self.sockets = [
            stack.enter_context(
                socket.create_connection((host, int(port)), source_address=(_OTHER_ADDRESS, 0))
            )
            for _ in range(_CONNECTIONS)
        ]
        self._decoders = {one: FrameDecoder() for one in self.sockets}
        self.answered_count = 0

    def count_answers(self) -> int:
        """Returns how many answers have come so far."""
        for one in self.sockets:
            one.setblocking(False)
            try:
                while chunk := one.recv(1 << 20):
                    self.answered_count += len(self._decoders[one].feed(chunk))
            except BlockingIOError:
                pass
            one.setblocking(True)
        return self.answered_count


def test_one_pull_does_not_wait_for_thousands_of_others(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    with victim.program, ExitStack() as stack:
        victim.wait_until_serving()
        client = stack.enter_context(victim.connect())
        for topic in ("theirs", "mine"):
            for queue_id in range(_QUEUES):
                answer = client.send(topic, queue_id, b"x", defaultTopicQueueNums=str(_QUEUES))
                assert answer.code == 0
        crowd = Crowd(victim, stack)
        pull = RequestCode.PULL_MESSAGE.value
        for one in crowd.sockets:
            for queue_id in range(_QUEUES):
                fields = pull_fields(
                    "theirs", queue_id, 1, sysFlag=_HELD, suspendTimeoutMillis=_WAIT_MS,
                    subscription=f"{COSTLY_CONDITION} OR a = 1", expressionType="SQL92",
                )  # fmt: skip
                one.sendall(b"".join(victim.request(pull, fields) for _ in range(_PULLS_EACH)))
        # Behind them on the same connections; its answer says that all before it were read.
        ask = victim.request(RequestCode.GET_MAX_OFFSET.value, {"topic": "mine", "queueId": "0"})
        for one in crowd.sockets:
            one.sendall(ask)
        wait_until(lambda: crowd.count_answers() >= _CONNECTIONS, what="pulls that are held")
        mine = pull_fields("mine", 0, 1, sysFlag=_HELD, suspendTimeoutMillis=_WAIT_MS)
        opaque = client.ask_later(pull, mine)
        with victim.connect() as sender:
            woken = {"properties": "a\x011\x02b\x0177\x02"}
            for queue_id in range(_QUEUES):
                sender.ask_later(
                    RequestCode.SEND_MESSAGE.value, send_fields("theirs", queue_id, **woken), b"x"
                )
            for _ in range(_QUEUES):
                sender.read()
            assert sender.send("mine", 0, b"x").code == 0
        answer = client.read()
        before_count = crowd.count_answers() - _CONNECTIONS
        assert answer is not None and answer.opaque == opaque
        assert answer.code == ResponseCode.SUCCESS
        all_count = _CONNECTIONS * _QUEUES * _PULLS_EACH
        assert before_count < all_count / 2
        wait_until(lambda: crowd.count_answers() >= all_count + _CONNECTIONS, what="all answers")
