"""The account of sends on their way."""

import asyncio

from ledgermq.client.window import SendWindow


async def turn() -> None:
    await asyncio.sleep(0)


def test_count_and_bytes_are_limits() -> None:
    window = SendWindow(2, 100)
    assert window.enter(40)
    assert not window.enter(61)
    assert window.enter(60)
    assert not window.enter(0)
    window.release(40)
    assert window.enter(40)


def test_one_send_always_fits() -> None:
    assert SendWindow(1, 10).enter(1_000_000)


def test_who_came_first_goes_first() -> None:
    async def run() -> None:
        window = SendWindow(10, 100)
        window.enter(90)
        large = asyncio.ensure_future(window.wait(50))
        await turn()
        # It would fit, but somebody waits already.
        assert not window.enter(5)
        small = asyncio.ensure_future(window.wait(5))
        await turn()
        assert not large.done() and not small.done()
        window.release(90)
        await turn()
        await turn()
        assert large.done() and small.done()

    asyncio.run(run())


def test_who_gives_up_makes_way() -> None:
    async def run() -> None:
        window = SendWindow(10, 100)
        window.enter(90)
        large = asyncio.ensure_future(window.wait(50))
        small = asyncio.ensure_future(window.wait(5))
        await turn()
        large.cancel()
        await turn()
        await turn()
        assert small.done() and large.cancelled()
        window.release(90)
        window.release(5)
        assert window.enter(100)

    asyncio.run(run())


def test_who_gives_up_in_the_turn_of_being_let_in_gives_the_room_back() -> None:
    async def run() -> None:
        window = SendWindow(1, 100)
        window.enter(10)
        waiting = asyncio.ensure_future(window.wait(10))
        await turn()
        window.release(10)
        waiting.cancel()
        await turn()
        await turn()
        assert waiting.cancelled()
        assert window.enter(100)

    asyncio.run(run())


def test_who_comes_in_the_turn_of_being_let_in_does_not_overtake() -> None:
    """Sends of one ordering key would change places."""

    async def run() -> None:
        window = SendWindow(2, 100)
        window.enter(10)
        window.enter(10)
        order = []

        async def wait(name: str) -> None:
            await window.wait(10)
            order.append(name)

        first = asyncio.ensure_future(wait("first"))
        await turn()
        window.release(10)
        window.release(10)
        # There is room for both, but the first has not gone on yet.
        assert not window.enter(10)
        second = asyncio.ensure_future(wait("second"))
        await asyncio.gather(first, second)
        assert order == ["first", "second"]
        assert (window.count, window.waiting_count) == (2, 0)
        window.release(10)
        assert window.enter(10)

    asyncio.run(run())


def test_more_room_lets_in_who_waits_and_less_turns_nobody_out() -> None:
    async def run() -> None:
        window = SendWindow(1, 100)
        window.enter(0)
        waiting = asyncio.ensure_future(window.wait(0))
        await turn()
        window.resize(2)
        await waiting
        window.resize(1)
        assert window.count == 2
        window.release(0)
        assert not window.enter(0)

    asyncio.run(run())
