"""A name server and three brokers, each on a host of its own with a disk of its own.

A process that ends is started again a second later, as a supervisor does, and that is noted. What
the brokers say of their roles is noted with the time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from tests.fault.hosts.moved_clock import WallClock
from tests.fault.hosts.network import Network
from tests.fault.small_disk import SmallDisk
from tests.fault.up_group import NODES, counts
from tests.processes import LiveProgram, run_ledgermq
from tests.waiting import wait_until

NAME_SERVER = "namesrv"
CLIENTS = "clients"
HOSTS = (*NODES, NAME_SERVER, CLIENTS)
TOPIC = "Faults"
QUEUES = 4
RESTART_S = 1.0
_LOOK_S = 0.02
_PORT = 10911
_LEDGER_PORT = 40911
_NAME_SERVER_PORT = 9876
_DISK_BYTES = 1 << 30
_READY_S = 120.0
_CLUSTER = "DefaultCluster"
# Files that are soon full, so that a full disk is soon noticed. Nothing acknowledged is ever old
# enough to go, at any hour; where it goes, a clock was believed.
_SETTINGS = {
    "mappedFileSizeCommitLog": "524288",
    "mappedFileSizeDLedgerIndex": "131072",
    "mappedFileSizeConsumeQueue": "20000",
    "maxMessageSize": "65536",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "fileReservedTime": "72",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanFileForciblyEnable": "false",
}
_LEADS = re.compile(r"(n\d) is LEADER in term (\d+)")


class Change(NamedTuple):
    """What a program said of itself, or what became of it."""

    # On the monotonic clock.
    at_s: float
    name: str
    text: str


class Supervised:
    """One program over all its lives; each life has a log of its own."""

    def __init__(self, name: str, folder: Path, start: Callable[[Path], LiveProgram]) -> None:
        self.name = name
        self._folder = folder
        self._start = start
        self._life = 0
        self._ended_s: float | None = None
        # Whether an end is what somebody wants; changed and looked at under the lock.
        self._is_left_alone = False
        self._lock = threading.Lock()
        self.program = self._new_life()

    def _new_life(self) -> LiveProgram:
        self._life += 1
        self._ended_s = None
        return self._start(self._folder / f"{self.name}.{self._life}.log")

    @property
    def state(self) -> str:
        """Its role and whether it serves, in words; empty while it is down or starts."""
        status = self.program.status
        if not self.program.is_running or not status:
            return ""
        return f"{status['role']}{' serves' if status.get('serving') else ''}"

    def log_text(self) -> str:
        """The log of this life."""
        return self.program.log_text()

    def look(self) -> str | None:
        """Starts it again when it has ended; returns what became of it."""
        with self._lock:
            if self._is_left_alone or self.program.is_running:
                return None
            if self._ended_s is None:
                self._ended_s = time.monotonic()
                return f"ended with {self.program.wait()}"
            if time.monotonic() < self._ended_s + RESTART_S:
                return None
            self.program.stop()
            self.program = self._new_life()
            return "started again"

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        os.kill(self.program.pid, number)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Stops it in order, and starts it again behind the block."""
        self.end()
        try:
            yield
        finally:
            self.program = self._new_life()
            with self._lock:
                self._is_left_alone = False

    def end(self) -> int:
        """Stops it for good; returns its exit code."""
        with self._lock:
            self._is_left_alone = True
        return self.program.stop()

    def kill(self) -> None:
        """Ends it anyhow, for good."""
        self.program.kill()
        self.end()


class Cluster:
    """All of it; use it in a `with` block."""

    def __init__(self, folder: Path, network: Network) -> None:
        """Nothing runs yet.

        Args:
            folder: for the stores and the logs.
            network: joins HOSTS.
        """
        self.folder = folder
        self.data = folder / "data"
        self.logs = folder / "logs"
        self.network = network
        self.disks: dict[str, SmallDisk] = {}
        self.clocks: dict[str, WallClock] = {}
        self.programs: dict[str, Supervised] = {}
        # Written by the thread that looks.
        self.changes: list[Change] = []
        self._said: dict[str, str] = {}
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True)
        try:
            for name in (NAME_SERVER, *NODES):
                self.clocks[name] = WallClock(self.folder / f"{name}.clock")
                if name in NODES:
                    self.disks[name] = SmallDisk(self.data / name, _DISK_BYTES)
                self.programs[name] = Supervised(name, self.logs, self._starter(name))
            self._watcher.start()
            wait_until(self.is_whole, what="a leader and two followers", deadline_s=_READY_S)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_watch()
        for one in self.programs.values():
            one.kill()
        for disk in self.disks.values():
            disk.unmount()

    def _starter(self, name: str) -> Callable[[Path], LiveProgram]:
        """Returns what starts the program of a host."""
        clock = str(self.clocks[name].path)
        program = (sys.executable, "-m", "tests.fault.hosts.moved_clock", clock)
        command = (*self.network.command(name), *program)
        if name == NAME_SERVER:
            path = self._write(name, self._name_server_settings())
            words = ["namesrv", "--json", "-c", path]
        else:
            path = self._write(name, self._broker_settings(name))
            words = ["broker", "--json", "-c", path]
        return lambda log: LiveProgram(words, log, command=command)

    def _write(self, name: str, settings: dict[str, str]) -> Path:
        path = self.folder / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _name_server_settings(self) -> dict[str, str]:
        return {
            "listenPort": str(_NAME_SERVER_PORT),
            "kvConfigPath": str(self.folder / "kvConfig.json"),
        }

    def _broker_settings(self, name: str) -> dict[str, str]:
        addresses = self.network.addresses
        peers = ";".join(f"{node}-{addresses[node]}:{_LEDGER_PORT}" for node in NODES)
        return {
            "brokerClusterName": _CLUSTER,
            "brokerName": "broker-a",
            "brokerIP1": addresses[name],
            "listenPort": str(_PORT),
            "namesrvAddr": self.name_server,
            "storePathRootDir": str(self.data / name),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerPeers": peers,
            "dLegerSelfId": name,
            **_SETTINGS,
        }

    @property
    def name_server(self) -> str:
        """Address of the name server."""
        return f"{self.network.addresses[NAME_SERVER]}:{_NAME_SERVER_PORT}"

    def address(self, node: str) -> str:
        """Where clients reach a broker."""
        return f"{self.network.addresses[node]}:{_PORT}"

    def make_topic(self) -> None:
        """Makes the topic of the load."""
        words = ["-n", self.name_server, "-c", _CLUSTER, "-t", TOPIC, "-r", QUEUES, "-w", QUEUES]
        done = run_ledgermq("admin", "updateTopic", *words)
        assert done.returncode == 0, done.stderr

    # What the programs say.

    def _watch(self) -> None:
        """Runs in a thread of its own until the end."""
        while not self._is_over.wait(_LOOK_S):
            for name, one in self.programs.items():
                fate = one.look()
                if fate is not None:
                    self.changes.append(Change(time.monotonic(), name, fate))
                state = one.state
                if self._said.get(name, "") != state:
                    self._said[name] = state
                    self.changes.append(Change(time.monotonic(), name, state or "says nothing"))

    def _end_watch(self) -> None:
        self._is_over.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def find_leader(self) -> str | None:
        """The broker that serves, None when none or several say so."""
        serving = [node for node in NODES if self.programs[node].state == "LEADER serves"]
        return serving[0] if len(serving) == 1 else None

    def wait_for_leader(self) -> str:
        """Waits until exactly one broker serves."""
        leader = wait_until(self.find_leader, what="one leader", deadline_s=_READY_S)
        assert leader is not None
        return leader

    def followers(self) -> list[str]:
        """The others."""
        leader = self.wait_for_leader()
        return [node for node in NODES if node != leader]

    def is_whole(self) -> bool:
        """Whether one serves, two follow, and all of them count."""
        states = sorted(self.programs[node].state for node in NODES)
        is_group = states == ["FOLLOWER", "FOLLOWER", "LEADER serves"]
        return is_group and all(counts(self.programs[node].log_text()) for node in NODES)

    def terms(self) -> dict[int, set[str]]:
        """Who led in each term, as the logs of all lives tell."""
        found: dict[int, set[str]] = {}
        for path in self.logs.glob("n*.log"):
            for node, term in _LEADS.findall(path.read_text(errors="replace")):
                found.setdefault(int(term), set()).add(node)
        return found

    # What is done to them.

    def signal(self, number: signal.Signals, *nodes: str) -> None:
        """Sends a signal to brokers."""
        for node in nodes:
            self.programs[node].signal(number)

    def wipe(self, node: str) -> None:
        """Stops a broker, empties its disk, and starts it again."""
        with self.programs[node].down():
            for path in self.disks[node].path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def restart(self) -> None:
        """Ends all brokers in order, one after the other, and starts them again."""
        for node in NODES:
            with self.programs[node].down():
                pass

    def stop(self) -> int:
        """Stops all for good; returns the first exit code that is not 0."""
        self._end_watch()
        codes = [self.programs[name].end() for name in (*NODES, NAME_SERVER)]
        return next((code for code in codes if code), 0)
