"""The push consumer: one of ours, in a process that runs until its standard input closes.

    python -m tests.fault.hosts.consumer NAMESRV TOPIC FILE

FILE gets one note for each delivery, at once (see notes). A line of JSON at the end tells how many
there were.
"""

import asyncio
import json
import sys
import time

from ledgermq.client import PushConsumer, ReceivedMessage
from tests.fault.hosts.notes import NOTE
from tests.fault.hosts.producer import number_of


async def run(namesrv: str, topic: str, path: str) -> dict[str, object]:
    """Consumes until standard input closes."""
    count = 0
    with open(path, "wb", buffering=0) as file:

        async def listen(message: ReceivedMessage) -> None:
            nonlocal count
            count += 1
            queue, offset = message.queue.queue_id, message.queue_offset
            file.write(NOTE.pack(number_of(message.body), queue, offset, time.monotonic()))

        async with PushConsumer(namesrv, "fault-readers", topic, listen, start="first"):
            await asyncio.to_thread(sys.stdin.read)
    return {"delivered": count}


if __name__ == "__main__":
    outcome = asyncio.run(run(*sys.argv[1:4]))
    sys.stdout.write(json.dumps(outcome) + "\n")
