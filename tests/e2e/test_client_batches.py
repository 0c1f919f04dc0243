"""Batches that a producer makes by itself, and compressed bodies, through a real broker."""

from __future__ import annotations

import asyncio

import pytest

from ledgermq.client import Message, Producer, ProducerConfig, PullConsumer
from ledgermq.client.config import Compression
from tests.scenarios import run, until


@pytest.mark.parametrize("key", [None, "k"])
def test_each_message_of_a_batch_lies_where_its_result_says(
    name_server: str, key: str | None
) -> None:
    async def scenario() -> None:
        topic = f"Linger{key}"
        async with Producer(name_server, config=ProducerConfig(linger_s=0.02)) as producer:
            futures = [
                await producer.submit(
                    Message(topic, b"%d" % number, keys=f"k{number}"), ordering_key=key
                )
                for number in range(500)
            ]
            results = await asyncio.gather(*futures)
        async with PullConsumer(name_server) as consumer:
            await until_known(consumer, topic)
            places = {}
            for queue in await consumer.queues(topic):
                offset = 0
                while found := (await consumer.pull(queue, offset)).messages:
                    places.update({(queue, one.queue_offset): one for one in found})
                    offset = found[-1].queue_offset + 1
        assert len(places) == 500
        for number, result in enumerate(results):
            one = places[result.queue, result.queue_offset]
            assert (one.body, one.keys) == (b"%d" % number, f"k{number}")
            assert (one.message_id, one.offset_message_id) == (
                result.message_id,
                result.offset_message_id,
            )
        if key is not None:
            offsets = [result.queue_offset for result in results]
            assert offsets == list(range(500)) and len({r.queue_id for r in results}) == 1

    run(scenario())


async def until_known(consumer: PullConsumer, topic: str) -> None:
    found: list[object] = []

    async def look() -> None:
        while not found:
            try:
                found.extend(await consumer.queues(topic))
            except Exception:
                await asyncio.sleep(0.05)

    task = asyncio.get_running_loop().create_task(look())
    await until(lambda: found, "a route")
    await task


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_body_comes_as_it_was_sent_whatever_the_compression(
    name_server: str, compression: Compression
) -> None:
    async def scenario() -> None:
        body = b"compressible " * 10_000
        config = ProducerConfig(compression=compression)
        async with Producer(name_server, config=config) as producer:
            result = await producer.send(Message("Compressed", body))
        async with PullConsumer(name_server) as consumer:
            await until_known(consumer, "Compressed")
            (found,) = (await consumer.pull(result.queue, result.queue_offset)).messages[:1]
            assert found.body == body and len(found.record.body) < len(body) / 10

    run(scenario())
