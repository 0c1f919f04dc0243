"""The clients of a soak, each a process of its own that runs until its standard input closes.

    python -m tests.fault.soak_programs send NAMESRV TOPIC FILE RATE
    python -m tests.fault.soak_programs consume NAMESRV TOPIC FILE GROUP MODE

FILE gets one record (number, queue, queue offset) for each acknowledgement or delivery, in the
order in which they came. A line of JSON at the end tells what else was seen.
"""

import asyncio
import collections
import json
import struct
import sys
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ledgermq.client import Message, Producer, PushConsumer, ReceivedMessage, SendResult

NOTE = struct.Struct(">QIQ")
NUMBER = struct.Struct(">Q")
FILLER = b"x" * 192
KEY_COUNT = 8
_TURN_S = 0.02


def _note_result(
    file: BinaryIO,
    failures: collections.Counter[str],
    number: int,
    done: asyncio.Future[SendResult],
) -> None:
    error = done.exception()
    if error is not None:
        failures[type(error).__name__] += 1
        return
    result = done.result()
    file.write(NOTE.pack(number, result.queue_id, result.queue_offset))


async def send(namesrv: str, topic: str, path: str, rate: int) -> dict[str, object]:
    """Sends so many messages a second, every second one with an ordering key."""
    failures: collections.Counter[str] = collections.Counter()
    number = 0
    ending = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    begun_s = asyncio.get_running_loop().time()
    with Path(path).open("wb") as file:
        async with Producer(namesrv, "soak-senders") as producer:
            while not ending.done():
                await asyncio.sleep(_TURN_S)
                due = int((asyncio.get_running_loop().time() - begun_s) * rate)
                # After a time without a leader, what is due is not sent in one heap.
                for _ in range(min(due - number, rate)):
                    key = f"k{number % KEY_COUNT}" if number % 2 else None
                    body = NUMBER.pack(number) + FILLER
                    result = await producer.submit(Message(topic, body), ordering_key=key)
                    result.add_done_callback(partial(_note_result, file, failures, number))
                    number += 1
                file.flush()
            await producer.flush()
            # The callbacks of the last results run in the next turn.
            await asyncio.sleep(0)
    return {"sent": number, "failed": dict(failures)}


async def consume(namesrv: str, topic: str, path: str, group: str, mode: str) -> dict[str, object]:
    """Is a member of a group that notes all it gets."""
    ending = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    count = 0
    with Path(path).open("wb") as file:

        async def listen(message: ReceivedMessage) -> None:
            nonlocal count
            count += 1
            (number,) = NUMBER.unpack_from(message.body)
            file.write(NOTE.pack(number, message.queue.queue_id, message.queue_offset))

        async with PushConsumer(namesrv, group, topic, listen, start="first", mode=mode):
            while not ending.done():
                await asyncio.wait([ending], timeout=1.0)
                file.flush()
    return {"delivered": count}


def main(words: list[str]) -> int:
    """Runs one program."""
    if words[0] == "send":
        found = asyncio.run(send(words[1], words[2], words[3], int(words[4])))
    else:
        found = asyncio.run(consume(*words[1:6]))
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
