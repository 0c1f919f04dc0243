"""Topics with known messages for the tests of this directory."""

import contextlib
from collections.abc import Sequence
from concurrent.futures import wait

from ledgermq.client import Message, NoRouteError, ProducerConfig
from ledgermq.client.blocking import Producer, PullConsumer
from tests.waiting import wait_until


def send_numbered(name_server: str, topic: str, count: int, *, start: int = 0) -> None:
    """Sends messages ``0``, ``1``, ... with tag A, B or none, a key and two properties each."""
    send_all(
        name_server,
        [
            Message(
                topic,
                f"body {number}".encode(),
                tags=("A", "B", "")[number % 3],
                keys=f"key-{number} all",
                properties={"number": str(number), "who": "tést"},
            )
            for number in range(start, start + count)
        ],
    )


def send_all(name_server: str, messages: Sequence[Message]) -> None:
    """Sends messages, waits until all are acknowledged and the name server knows the topic."""
    # A slow machine is no reason to send twice.
    config = ProducerConfig(timeout_s=60, attempt_timeout_s=60, compress_from_bytes=1000)
    with Producer(name_server, config=config) as producer:
        futures = [producer.submit(message) for message in messages]
        assert not wait(futures, 60).not_done
        for future in futures:
            future.result()
    with PullConsumer(name_server) as consumer:

        def is_known() -> bool:
            with contextlib.suppress(NoRouteError):
                return bool(consumer.queues(messages[0].topic))
            return False

        wait_until(is_known, what="a route to the new topic")
