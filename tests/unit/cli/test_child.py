"""A part of a development cluster that dies again and again."""

import asyncio
import signal
from pathlib import Path

from ledgermq.cli.child import RESTART_DELAY_S_MAX, Child
from ledgermq.cli.failure import EXIT_CONFIG


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

    def died(self, child: Child, reason: str, exit_code: int, delay_s: float) -> bool:
        assert exit_code == EXIT_CONFIG and "listenPort" in reason
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


async def trouble_in(directory: Path, log: str) -> str | None:
    owner = Owner(directory)
    owner.log_path("n0").write_text(log)
    return Child(owner, "n0", [], "127.0.0.1:1").trouble()


def test_the_last_error_of_a_log_is_its_trouble(tmp_path: Path) -> None:
    told = "2026-11-24T14:03:32+0000 [ledgermq.dledger.replica.driver#%s] n0: waits: no [x#error] y"
    calm = told % "info"
    assert asyncio.run(trouble_in(tmp_path, calm + "\n")) is None
    log = "\n".join((told % "error", "2026-11-24T14:03:33+0000 [a#error] the last one", calm, ""))
    assert asyncio.run(trouble_in(tmp_path, log)) == "the last one"
    assert asyncio.run(trouble_in(tmp_path, told % "error")) == "n0: waits: no [x#error] y"
