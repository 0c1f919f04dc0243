"""One message there and back, to show that a cluster works.

The message is sent to a topic of its own, which the cluster makes when it is missing, read back at
the offset that the broker gave for it, and compared.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from ledgermq.client import (
    ClientConfig,
    ClientError,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullStatus,
    load_client_tls,
)
from ledgermq.protocol.names import ROUND_TRIP_GROUP, ROUND_TRIP_TOPIC

# How long the message may take to become readable after it was acknowledged.
READ_PATIENCE_S: Final = 5.0
READ_PAUSE_S: Final = 0.02


class RoundTripError(Exception):
    """What came back is not what was sent."""


async def check_round_trip(namesrv_address: str, tls_file: str | None = None) -> str:
    """Sends one message and reads it back.

    Args:
        namesrv_address: ``host:port`` of a name server.
        tls_file: use TLS, as this tls.properties says.

    Returns:
        What was done and how long it took, for a person.

    Raises:
        ClientError: the cluster did not take the message or did not give it back.
        RoundTripError: another message came back.
        TlsSettingsError: the file says nothing of the client's end.
    """
    config = ClientConfig(tls=load_client_tls(tls_file) if tls_file else None)
    body = b"round trip " + os.urandom(8).hex().encode()
    begun = time.perf_counter()
    async with (
        Producer(
            namesrv_address, ROUND_TRIP_GROUP, config=ProducerConfig(client=config)
        ) as producer,
        PullConsumer(
            namesrv_address, ROUND_TRIP_GROUP, config=ConsumerConfig(client=config)
        ) as consumer,
    ):
        sent = await producer.send(Message(ROUND_TRIP_TOPIC, body, tags="RoundTrip"))
        acknowledged = time.perf_counter()
        while True:
            try:
                found = await consumer.pull(sent.queue, sent.queue_offset, suspend_s=1.0)
            except ClientError as error:
                # A topic that has just been made may not yet be in the route.
                if not error.retriable or time.perf_counter() > acknowledged + READ_PATIENCE_S:
                    raise
                await asyncio.sleep(READ_PAUSE_S)
                continue
            if found.status is PullStatus.FOUND:
                break
            if time.perf_counter() > acknowledged + READ_PATIENCE_S:
                raise RoundTripError(f"no message at {sent.queue} offset {sent.queue_offset}")
        message = found.messages[0]
        if message.body != body or message.message_id != sent.message_id:
            raise RoundTripError(f"sent {sent.message_id} {body!r}, read {message!r}")
        read = time.perf_counter()
    return (
        f"round trip: message {sent.message_id} stored in {sent.broker_name} queue "
        f"{sent.queue_id} at offset {sent.queue_offset}, acknowledged after "
        f"{(acknowledged - begun) * 1000:.1f} ms, read back after {(read - begun) * 1000:.1f} ms"
    )
