"""A task that nothing but its own end ends."""

import asyncio
import logging

import pytest

from ledgermq.client import ClosedError
from ledgermq.client.endless import all_of, keep_going
from tests.unit.client.virtual_net import Net, run


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_goes_on_after_a_failure_with_ever_longer_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(net: Net) -> None:
        begun_s: list[float] = []

        async def turn() -> bool:
            begun_s.append(now_s())
            if len(begun_s) < 12:
                raise KeyError("unforeseen")
            return True

        await keep_going("counting", turn)
        gaps = [later - earlier for earlier, later in zip(begun_s, begun_s[1:], strict=False)]
        expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]
        assert gaps == pytest.approx(expected, abs=0.001)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len(caplog.records) == 11
    for record in caplog.records:
        assert record.levelno == logging.ERROR
        assert "counting failed; it goes on in" in record.getMessage()
        assert record.exc_info is not None and isinstance(record.exc_info[1], KeyError)


@pytest.mark.parametrize("good", ["a turn between", "a long turn"])
def test_pauses_are_short_again_after_a_good_time(good: str) -> None:
    async def scenario(net: Net) -> None:
        begun_s: list[float] = []

        async def turn() -> bool:
            begun_s.append(now_s())
            if len(begun_s) == 8:
                return True
            if len(begun_s) == 6:
                await asyncio.sleep(60)
                if good == "a turn between":
                    return False
            raise ValueError("unforeseen")

        await keep_going("counting", turn)
        pause_s = begun_s[7] - begun_s[6]
        assert pause_s == pytest.approx(0.1 if good == "a turn between" else 0.2, abs=0.001)

    run(scenario)


def test_is_ended_by_who_cancels_it_and_by_no_other_cancellation() -> None:
    async def scenario(net: Net) -> None:
        turns = 0
        other: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        other.cancel()

        async def turn() -> None:
            nonlocal turns
            turns += 1
            if turns == 1:
                # What it waited for was cancelled, not itself.
                await other
            await asyncio.sleep(1)

        task = asyncio.get_running_loop().create_task(keep_going("waiting", turn))
        await asyncio.sleep(5)
        assert not task.done() and turns > 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)


def test_all_are_done_before_the_worst_failure_is_told() -> None:
    async def scenario(net: Net) -> None:
        done: list[str] = []

        async def work(name: str, seconds: float, error: Exception | None) -> None:
            await asyncio.sleep(seconds)
            done.append(name)
            if error is not None:
                raise error

        away = ClosedError("away")
        with pytest.raises(KeyError):
            await all_of([work("a", 1, away), work("b", 2, KeyError()), work("c", 3, None)])
        assert done == ["a", "b", "c"]
        with pytest.raises(ClosedError):
            await all_of([work("d", 1, away), work("e", 2, None)])
        await all_of([])

    run(scenario)
