"""Answers that wait until a change, or a message of the broker's own, is committed."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.state.errors import BrokerError
from ledgermq.state.under_way import OnCommitted


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
    return when_committed(change).addCallback(
        lambda _: command.response(ResponseCode.SUCCESS, body=body)
    )


def when_committed(change: Callable[[OnCommitted], None]) -> Deferred[Any]:
    """Returns a Deferred that fires when a change is committed, and fails with its error.

    Args:
        change: as in answer_when_committed.
    """
    ended: Deferred[Any] = Deferred()

    def committed(error: BrokerError | None) -> None:
        if error is None:
            ended.callback(None)
        else:
            ended.errback(error)

    change(committed)
    return ended
