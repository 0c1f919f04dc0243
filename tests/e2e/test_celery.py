"""A Celery application on LedgerMQ: two worker processes, and one of them is killed."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery import chord, group
from celery.exceptions import TaskRevokedError

from ledgermq.testing import LedgerCluster
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.e2e.celery_app"
# One forks, one does not.
POOLS = {"w0": "prefork", "w1": "solo"}
_WAIT_S = 90.0


def start_worker(name: str, pool: str, folder: Path) -> subprocess.Popen[bytes]:
    """A worker in a process group of its own."""
    options = ["-P", pool, "-c", "1", "-n", f"{name}@test", "-l", "INFO"]
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", MODULE, "worker", *options],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a worker and its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The application, whose broker is a cluster of this test."""
    (tmp_path / "results").mkdir()
    with LedgerCluster(nodes=1) as cluster:
        monkeypatch.setenv("CELERY_APP_FOLDER", str(tmp_path))
        monkeypatch.setenv("CELERY_APP_BROKER", f"ledgermq://{cluster.name_server}/shop")
        module = importlib.import_module(MODULE)
        try:
            yield module
        finally:
            module.app.close()
            del sys.modules[MODULE]


@pytest.fixture
def workers(shop: ModuleType, tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Two workers that answer."""
    with ExitStack() as ends:
        processes = {}
        for name, pool in POOLS.items():
            processes[name] = start_worker(name, pool, tmp_path)
            ends.callback(kill, processes[name])

        def logs() -> str:
            return "\n".join((tmp_path / f"{name}.log").read_text() for name in POOLS)

        def are_there() -> bool:
            assert all(process.poll() is None for process in processes.values()), logs()
            return len(shop.app.control.inspect(timeout=1.0, limit=2).ping() or {}) == 2

        try:
            wait_until(are_there, what="two workers", deadline_s=_WAIT_S)
            yield processes
        except BaseException as error:
            error.add_note(logs())
            raise


def got(result: Any) -> Any:
    """The value of a result."""
    return result.get(timeout=_WAIT_S, interval=0.02)


def test_an_application_runs_and_loses_no_task_with_a_worker(
    shop: ModuleType, workers: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    app = shop.app
    assert got(group(shop.add.s(i, i) for i in range(10)).apply_async()) == list(range(0, 20, 2))
    assert got(chord((shop.add.s(i, 1) for i in range(5)), shop.total.s()).apply_async()) == 15
    assert got((shop.add.s(1, 2) | shop.add.s(3)).apply_async()) == 6
    assert got(shop.third_time.delay()) == 2
    assert got(shop.add.apply_async((1, 1), countdown=0.3)) == 2

    replies = app.control.revoke("unwanted", reply=True, timeout=_WAIT_S, limit=2)
    assert len(replies) == 2
    with pytest.raises(TaskRevokedError):
        got(shop.add.apply_async((1, 1), task_id="unwanted"))

    slow = shop.patient.delay()
    first = wait_until(lambda: list(tmp_path.glob("began-*")), what="the task", deadline_s=_WAIT_S)
    name = first[0].read_text().partition("@")[0]
    kill(workers[name])
    wait_until(
        lambda: len(list(tmp_path.glob("began-*"))) > 1,
        what=f"the task of {name} at the other worker",
        deadline_s=_WAIT_S,
    )
    (tmp_path / "go").touch()
    assert got(slow) == "done"
    assert got(shop.add.delay(20, 22)) == 42

    left = next(iter(workers.keys() - {name}))
    workers[left].terminate()
    assert workers[left].wait(_WAIT_S) == 0, (tmp_path / f"{left}.log").read_text()
