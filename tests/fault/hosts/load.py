"""The clients under way: their processes, on a host of their own, and what they note."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.fault.hosts.cluster import CLIENTS, TOPIC, Cluster
from tests.fault.hosts.notes import Notes

_END_S = 120.0


class Client:
    """One client program, which notes into a file until its standard input closes."""

    def __init__(self, cluster: Cluster, name: str, *words: str) -> None:
        """Starts it.

        Args:
            cluster: what it connects to.
            name: of its module, its file and its log.
            words: further words of its command line.
        """
        self.notes = Notes(cluster.folder / f"{name}.notes")
        self._log = (cluster.logs / f"{name}.log").open("wb")
        module = f"tests.fault.hosts.{name}"
        place = [cluster.name_server, TOPIC, str(self.notes.path)]
        self._process = subprocess.Popen(
            [*cluster.network.command(CLIENTS), sys.executable, "-m", module, *place, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def end(self) -> dict[str, Any]:
        """Has it finish what is on its way; returns what it says."""
        out, _ = self._process.communicate(timeout=_END_S)
        assert self._process.returncode == 0, Path(self._log.name).read_text(errors="replace")
        self.notes.look()
        found: dict[str, Any] = json.loads(out)
        return found

    def kill(self) -> None:
        """Ends it anyhow."""
        self._process.kill()
        self._process.wait()
        self._log.close()


class Load:
    """The producers and a push consumer, from here to the end of the `with` block."""

    def __init__(self, cluster: Cluster, rate: int) -> None:
        """Starts them.

        Args:
            cluster: what they connect to.
            rate: messages that are sent in a second.
        """
        self.producer = Client(cluster, "producer", str(rate))
        self.consumer = Client(cluster, "consumer")
        self.acks = self.producer.notes
        self.deliveries = self.consumer.notes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.kill()
        self.consumer.kill()
