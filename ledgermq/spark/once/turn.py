"""Turn: the right to send the rows of one task of a write, which one try of it has at a time.

It is a lock that a broker keeps, under the name of the write and the task. A broker keeps a lock
for 60 s from its client's last request, and a new leader of LedgerMQ's, which inherits it, for
35 s. This try counts on it for 15 s only, and what it sends then is written within 10 s, so nothing
of it is written when another try can have the turn. What remains is a process that stands still
between its look at the clock and its write for longer than that.
"""

import threading
import time
import uuid
from typing import Final

from ledgermq.client import MessageQueue
from ledgermq.spark.batches import DEFAULT_GROUP
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import ClusterError

# How long a turn is counted on, and after how long it is asked for again.
VALID_S: Final = 15.0
RENEW_S: Final = 5.0
# How often to ask whether another try has ended.
_ASK_AGAIN_S: Final = 1.0
# How long it may be another try's. That one lives and sends as long as it has it.
_WAIT_S_MAX: Final = 86_400.0


class Turn:
    """The turn of one task, as one try of it sees it."""

    def __init__(self, cluster: Cluster, place: MessageQueue, name: str) -> None:
        """Asks for nothing yet.

        Args:
            cluster: stays the caller's.
            place: the queue whose broker keeps the turn.
            name: of write and task.
        """
        self._cluster = cluster
        self._place = place
        self._name = name
        self._client_id = f"spark@{uuid.uuid4().hex}"
        # When it was asked for with success; None: never, or it is given back.
        self._granted_s: float | None = None
        self._pause = threading.Event()

    @property
    def is_valid(self) -> bool:
        """True while no other try can have it."""
        return self._age_s < VALID_S

    @property
    def _age_s(self) -> float:
        if self._granted_s is None:
            return float("inf")
        return time.monotonic() - self._granted_s

    def hold(self) -> bool:
        """Returns when it is this try's turn.

        Returns:
            True when it begins anew: another try may have sent rows since this one counted on it.

        Raises:
            ClusterError: its broker does not answer.
        """
        if self._age_s < RENEW_S:
            return False
        # When the broker answers, the turn may have been another try's since the time before.
        granted_s = self._granted_s
        deadline_s = time.monotonic() + _WAIT_S_MAX
        while not self._take():
            granted_s = None
            if time.monotonic() > deadline_s:
                raise ClusterError(f"the turn {self._name}", "another try of the task does not end")
            self._pause.wait(_ASK_AGAIN_S)
        return granted_s is None or time.monotonic() - granted_s >= VALID_S

    def _take(self) -> bool:
        asked_s = time.monotonic()
        is_ours = self._cluster.lock(self._place, self._name, DEFAULT_GROUP, self._client_id)
        self._granted_s = asked_s if is_ours else None
        return is_ours

    def give_back(self) -> None:
        """Lets another try begin at once; nothing of this one may be on its way any more."""
        if self._granted_s is None:
            return
        self._granted_s = None
        try:
            self._cluster.unlock(self._place, self._name, DEFAULT_GROUP, self._client_id)
        except ClusterError:
            # It ends by itself.
            return


def turn_name(write_id: str, task: int) -> str:
    """Returns the name of a task's turn."""
    return f"{write_id}/{task}"
