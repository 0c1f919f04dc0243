"""Messages and a stand-in for a client instance, for tests of the parts of a consumer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ledgermq.client.errors import UnreachableError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.record import decode_record, encode_record

QUEUE = MessageQueue("T", "b", 0)
OTHER = MessageQueue("T", "b", 1)
HOST = (b"\x7f\x00\x00\x01", 1)


def message(
    offset: int, queue: MessageQueue = QUEUE, *, times: int = 0, properties: str = ""
) -> ReceivedMessage:
    head = (queue.topic.encode(), queue.queue_id, 0, offset, 0, 0, 0, HOST, 0, HOST, times, 0)
    data = encode_record(*head, b"%d" % offset, properties.encode())
    return ReceivedMessage(decode_record(data), queue, 1000)


def messages(start: int, end: int) -> list[ReceivedMessage]:
    return [message(offset) for offset in range(start, end)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(bounded())


class Instance:
    """A client instance whose brokers are a function."""

    def __init__(self, answer: Callable[[RemotingCommand], RemotingCommand | None]) -> None:
        self.client_id = "me@1"
        self._answer = answer

    async def master_of(self, topic: str, broker_name: str) -> str:
        return f"{broker_name}:1"

    async def request(self, address: str, command: RemotingCommand) -> RemotingCommand:
        answer = self._answer(command)
        if answer is None:
            raise UnreachableError("nobody there", retriable=True, broker=address)
        return answer
