"""A Celery application, as the workers of test_celery.py and the test itself load it."""

import os
from pathlib import Path

from celery import Celery, Task

import ledgermq.celery  # noqa: F401
from tests.waiting import wait_until

FOLDER = Path(os.environ["CELERY_APP_FOLDER"])
_WAIT_S = 90.0

app = Celery("shop", broker=os.environ["CELERY_APP_BROKER"], backend=f"file://{FOLDER}/results")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"lost_after_s": 3},
    result_chord_retry_interval=0.1,
    worker_prefetch_multiplier=1,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def third_time(self: Task) -> int:
    """Fails twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task(bind=True, acks_late=True)
def patient(self: Task) -> str:
    """Says who works on it, and ends when the file `go` is there."""
    (FOLDER / f"began-{os.getpid()}").write_text(self.request.hostname)
    wait_until((FOLDER / "go").exists, what="the file `go`", deadline_s=_WAIT_S)
    return "done"
