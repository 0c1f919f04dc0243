"""The producers: two of ours in one process that runs until its standard input closes.

    python -m tests.fault.hosts.producer NAMESRV TOPIC FILE RATE

Messages come in streams, half of them without an ordering key, the others with one of a few. A
number tells its stream and its body, and a body tells its number. FILE gets one note for each
acknowledgement, at once (see notes). A line of JSON at the end tells how many each stream sent, and
how many failed in which way.
"""

import asyncio
import collections
import json
import struct
import sys
import time
from functools import partial
from typing import BinaryIO

from ledgermq.client import ClientError, Message, Producer, SendResult
from tests.fault.hosts.notes import NOTE

_NUMBER = struct.Struct(">Q")
_PRODUCERS = 2
_KEYED = 8
# One for each producer without a key, then the keyed ones.
STREAMS = _PRODUCERS + _KEYED
_TURN_S = 0.02
# What could not be sent for want of room or of a leader is not sent in one heap: so much of it is.
_BURST_S = 0.2
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


def key_of(number: int) -> str | None:
    """The ordering key of a message."""
    stream = number % STREAMS
    return None if stream < _PRODUCERS else f"k{stream}"


class _Stream:
    """Messages that one producer sends, one behind the other as there is room."""

    def __init__(self, producer: Producer, topic: str, stream: int, file: BinaryIO) -> None:
        self._producer = producer
        self._topic = topic
        self._stream = stream
        self._file = file
        self.sent = 0
        self.failures: collections.Counter[str] = collections.Counter()

    async def run(self, rate: float, ending: asyncio.Future[str]) -> None:
        """Sends so many a second until the end."""
        loop = asyncio.get_running_loop()
        credit, before_s = 0.0, loop.time()
        while not ending.done():
            await asyncio.sleep(_TURN_S)
            now_s = loop.time()
            credit = min(credit + (now_s - before_s) * rate, max(1.0, _BURST_S * rate))
            before_s = now_s
            while credit >= 1:
                credit -= 1
                await self._send()

    async def _send(self) -> None:
        number = self.sent * STREAMS + self._stream
        self.sent += 1
        message = Message(self._topic, body_of(number))
        try:
            result = await self._producer.submit(message, ordering_key=key_of(number))
        except ClientError as error:
            self.failures[type(error).__name__] += 1
            return
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
    """Sends so many messages a second in all until standard input closes."""
    ending = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    with open(path, "wb", buffering=0) as file:
        async with (
            Producer(namesrv, "fault-senders") as one,
            Producer(namesrv, "fault-senders") as other,
        ):
            streams = [
                _Stream((one, other)[stream % _PRODUCERS], topic, stream, file)
                for stream in range(STREAMS)
            ]
            rates = [rate / 2 / _PRODUCERS] * _PRODUCERS + [rate / 2 / _KEYED] * _KEYED
            pairs = zip(streams, rates, strict=True)
            await asyncio.gather(*(stream.run(rate, ending) for stream, rate in pairs))
            await one.flush()
            await other.flush()
            # The callbacks of the last results run in the next turn.
            await asyncio.sleep(0)
    failed = sum((stream.failures for stream in streams), collections.Counter())
    return {"sent": [stream.sent for stream in streams], "failed": dict(failed)}


if __name__ == "__main__":
    _, name_server, topic_name, note_path, messages_s = sys.argv
    outcome = asyncio.run(run(name_server, topic_name, note_path, int(messages_s)))
    sys.stdout.write(json.dumps(outcome) + "\n")
