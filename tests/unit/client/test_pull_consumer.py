"""Reading at will: a program may poll as it likes, and wrong numbers are refused."""

import asyncio

import pytest

from ledgermq.client import ConfigError, PullConsumer
from tests.unit.client.virtual_net import Net, run

ADDRESS = "127.0.0.1:9876"


def test_polling_without_waiting_lets_others_have_their_turn() -> None:
    async def scenario(net: Net) -> None:
        net.listen(ADDRESS)
        async with PullConsumer(ADDRESS) as consumer:
            other = asyncio.ensure_future(asyncio.sleep(0))
            for _ in range(3):
                assert await consumer.poll(timeout_s=0) == []
            assert other.done()

    run(scenario)


def test_wrong_numbers_are_refused() -> None:
    async def scenario(net: Net) -> None:
        net.listen(ADDRESS)
        async with PullConsumer(ADDRESS) as consumer:
            with pytest.raises(ConfigError, match="count_max is 0; allowed: 1 and more"):
                await consumer.poll(count_max=0)
            queue = (await consumer.queues("T"))[0]
            await consumer.assign([queue], start="first")
            with pytest.raises(ConfigError, match="offset is -1; allowed: 0 and more"):
                await consumer.seek(queue, -1)

    run(scenario)
