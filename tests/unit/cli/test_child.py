"""A part of a development cluster that dies again and again."""

import asyncio
import signal
from pathlib import Path

from ledgermq.cli.child import RESTART_DELAY_S_MAX, Child


class Owner:
    """A cluster of one child, which it does not start again."""

    is_stopping = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.died_after_s: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def log_path(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def changed(self, child: Child) -> None:
        raise AssertionError("it never tells a state")

    def died(self, child: Child, reason: str, delay_s: float) -> bool:
        self.died_after_s.set_result(delay_s)
        return False

    def killed(self, child: Child) -> None:
        raise AssertionError("nobody stops it")


async def delay_of(directory: Path, deaths: int) -> float:
    """How long after its next death a child waits, that died so often."""
    owner = Owner(directory)
    child = Child(owner, "n0", ["broker", "listenPort=none"], "127.0.0.1:1")
    child.deaths = deaths
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, child.look)
    try:
        child.launch()
        return await asyncio.wait_for(owner.died_after_s, 30)
    finally:
        loop.remove_signal_handler(signal.SIGCHLD)


def test_a_child_is_started_again_however_often_it_died(tmp_path: Path) -> None:
    # As many as in some hours with a disk that gives errors.
    assert asyncio.run(delay_of(tmp_path, 3000)) == RESTART_DELAY_S_MAX
