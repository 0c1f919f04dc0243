"""The producers: two of ours in one process that runs until its standard input closes.

    python -m tests.fault.hosts.producer NAMESRV TOPIC FILE RATE

Every second message has one of a few ordering keys. A body tells its number, and the number tells
the body. FILE gets one note for each acknowledgement, at once (see notes). A line of JSON at the
end tells how many were sent, and how many failed in which way.
"""

import asyncio
import collections
import json
import struct
import sys
import time
from functools import partial
from typing import BinaryIO

from ledgermq.client import Message, Producer, SendResult
from tests.fault.hosts.notes import NOTE

_NUMBER = struct.Struct(">Q")
_KEYS = 4
_PRODUCERS = 2
_TURN_S = 0.02
# Bodies have 8 bytes to so many more, by a number that has no common factor with it.
_SIZES = 2_000
_STEP = 617


def body_of(number: int) -> bytes:
    """The body of a message."""
    filler = b"%d." % number
    return _NUMBER.pack(number) + (filler * _SIZES)[: number * _STEP % _SIZES]


def number_of(body: bytes) -> int:
    """The number that a body tells."""
    found: int = _NUMBER.unpack_from(body)[0]
    return found


class _Sending:
    """Sends, and notes what becomes of it."""

    def __init__(self, file: BinaryIO, topic: str, producers: list[Producer]) -> None:
        self._file = file
        self._topic = topic
        self._producers = producers
        self.sent = 0
        self.failures: collections.Counter[str] = collections.Counter()

    async def send(self) -> None:
        """Puts the next message on its way, as soon as there is room for it."""
        number = self.sent
        self.sent += 1
        producer = self._producers[number % _PRODUCERS]
        key = f"k{number // _PRODUCERS % _KEYS}" if number // _PRODUCERS % 2 else None
        message = Message(self._topic, body_of(number))
        result = await producer.submit(message, ordering_key=key)
        result.add_done_callback(partial(self._note, number))

    def _note(self, number: int, done: asyncio.Future[SendResult]) -> None:
        error = done.exception()
        if error is not None:
            self.failures[type(error).__name__] += 1
            return
        result = done.result()
        place = result.queue_id, result.queue_offset
        self._file.write(NOTE.pack(number, *place, time.monotonic()))


async def run(namesrv: str, topic: str, path: str, rate: int) -> dict[str, object]:
    """Sends so many messages a second until standard input closes."""
    ending = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    loop = asyncio.get_running_loop()
    with open(path, "wb", buffering=0) as file:
        async with (
            Producer(namesrv, "fault-senders") as one,
            Producer(namesrv, "fault-senders") as other,
        ):
            sending = _Sending(file, topic, [one, other])
            credit, before_s = 0.0, loop.time()
            while not ending.done():
                await asyncio.sleep(_TURN_S)
                now_s = loop.time()
                # What could not be sent for want of room is not sent in one heap.
                credit = min(credit + (now_s - before_s) * rate, 0.2 * rate)
                before_s = now_s
                while credit >= 1:
                    credit -= 1
                    await sending.send()
            await one.flush()
            await other.flush()
            # The callbacks of the last results run in the next turn.
            await asyncio.sleep(0)
    return {"sent": sending.sent, "failed": dict(sending.failures)}


if __name__ == "__main__":
    _, name_server, topic_name, note_path, messages_s = sys.argv
    outcome = asyncio.run(run(name_server, topic_name, note_path, int(messages_s)))
    sys.stdout.write(json.dumps(outcome) + "\n")
