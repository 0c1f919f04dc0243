"""What the producers are told, as this process sees it while they run on a host of their own."""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.fault.hosts.cluster import CLIENTS, TOPIC, Cluster
from tests.fault.hosts.producer import NOTE

END_S = 120.0


class Ack(NamedTuple):
    """One acknowledged message."""

    number: int
    queue: int
    offset: int
    # On the monotonic clock.
    sent_s: float
    at_s: float


class Load:
    """The producers, from the start of the `with` block until `end`."""

    def __init__(self, cluster: Cluster, rate: int) -> None:
        """Starts them.

        Args:
            rate: messages that are sent in a second.
        """
        self._notes = cluster.folder / "acknowledged"
        self._notes.touch()
        self._taken_bytes = 0
        self._log = (cluster.logs / "producer.log").open("wb")
        # In the order in which they were told.
        self.acks: list[Ack] = []
        self._times: list[float] = []
        words = [sys.executable, "-m", "tests.fault.hosts.producer"]
        words += [cluster.name_server, TOPIC, str(self._notes), str(rate)]
        self._process = subprocess.Popen(
            [*cluster.network.command(CLIENTS), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def look(self) -> None:
        """Takes what came since the last look; the last note may be written in part."""
        with open(self._notes, "rb") as file:
            file.seek(self._taken_bytes)
            data = file.read()
        data = data[: len(data) // NOTE.size * NOTE.size]
        self._taken_bytes += len(data)
        fresh = [Ack(*fields) for fields in NOTE.iter_unpack(data)]
        self.acks += fresh
        self._times += [ack.at_s for ack in fresh]

    def first_after(self, moment_s: float) -> float | None:
        """When the first acknowledgement after a moment came."""
        self.look()
        place = bisect.bisect_right(self._times, moment_s)
        return self._times[place] if place < len(self._times) else None

    def longest_gap(self, start_s: float, end_s: float) -> float:
        """The longest time without an acknowledgement of a span, in seconds."""
        times = self._times[
            bisect.bisect_left(self._times, start_s) : bisect.bisect_right(self._times, end_s)
        ]
        moments = [start_s, *times, end_s]
        return max(after - before for before, after in zip(moments, moments[1:], strict=False))

    def count(self, start_s: float, end_s: float) -> int:
        """Acknowledgements of a span."""
        return bisect.bisect_right(self._times, end_s) - bisect.bisect_left(self._times, start_s)

    def ends(self) -> dict[int, int]:
        """By queue, the offset behind the last acknowledged message."""
        found: dict[int, int] = {}
        for ack in self.acks:
            found[ack.queue] = max(found.get(ack.queue, 0), ack.offset + 1)
        return found

    def end(self) -> dict[str, Any]:
        """Has the producers finish what is on its way; returns what they say."""
        out, _ = self._process.communicate(timeout=END_S)
        assert self._process.returncode == 0, Path(self._log.name).read_text(errors="replace")
        self.look()
        found: dict[str, Any] = json.loads(out)
        return found
