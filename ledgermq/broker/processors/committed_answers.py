"""Answers that wait until a change, or a message of the broker's own, is committed."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from ledgermq.broker.errors import BrokerError
from ledgermq.broker.under_way import OnCommitted
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand


def answer_when_committed(
    command: RemotingCommand, change: Callable[[OnCommitted], None], body: bytes = b""
) -> Deferred[Any]:
    """Makes a change and returns the answer to its request.

    Args:
        command: who is answered.
        change: begins the change and has its argument called when it is known what became of it.
        body: of the answer.

    Returns:
        A Deferred with SUCCESS, which fails with the error that the change ended in.
    """
    answer: Deferred[Any] = Deferred()

    def committed(error: BrokerError | None) -> None:
        if error is None:
            answer.callback(command.response(ResponseCode.SUCCESS, body=body))
        else:
            answer.errback(error)

    change(committed)
    return answer
