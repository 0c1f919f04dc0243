"""``ledgermq up``: a development cluster on this machine, one process for each part.

A name server and a group of brokers (n0, n1, ...) are started as children, restarted when they die,
and stopped together; one that cannot start at all ends the cluster, with the reason, at once when
its settings are to blame (exit code 78). Node i listens
on base port + 10 * i, its ledger port is that + 30000. Settings go to all brokers; those that begin
with ``namesrv.`` go to the name server instead, and those of TLS to both; of httpPort node i has
the one + 10 * i. Prints one line for each
part, then ``ready`` once a leader serves that the name server knows; with ``--ready-file`` the same
is written as JSON (replaced in one step whenever a process or a role changes); `console` is null
without one:

    {"namesrv": "127.0.0.1:9876", "console": "http://127.0.0.1:8080/",
     "brokers": [{"id": "n0", "pid": 17, "address": "127.0.0.1:10911",
                  "dledger": "127.0.0.1:40911", "role": "LEADER"}, ...]}
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from ledgermq.cli.child import STARTING, STOP_PATIENCE_S, Child
from ledgermq.cli.failure import EXIT_CONFIG, fail, refuse
from ledgermq.cli.private_files import use_private_files
from ledgermq.cli.settings import TLS_FILE, TLS_MODE, parse_settings, split_settings

HOST: Final = "127.0.0.1"
DLEDGER_PORT_STEP: Final = 30_000
NODE_PORT_STEP: Final = 10
PORT_MAX: Final = 65_535
# Three nodes and their files have to fit a laptop: smaller segments than upstream's 1 GiB.
SMALL_STORE: Final = {
    "mappedFileSizeCommitLog": str(128 * 1024 * 1024),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
}
# With access control the members have a secret: their ports ask for no account.
_ACL: Final = "aclEnable"
_SECRET_FILE: Final = "dLegerGroupSecretFile"
# So many starts that fail before the cluster was ever ready, and it is given up.
FAILED_STARTS_MAX: Final = 3
# A cluster that is not ready by then says where to look.
READY_PATIENCE_S: Final = 30.0
# By then it says what its brokers take for errors, such as a disk without room.
TROUBLE_PATIENCE_S: Final = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "--nodes",
        type=int,
        default=3,
        metavar="N",
        help="brokers, 1 to 9; default: %(default)s",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where all is stored; default: a temporary one"
    )
    parser.add_argument(
        "--namesrv-port",
        type=int,
        default=9876,
        metavar="PORT",
        help="of the name server; default: %(default)s",
    )
    parser.add_argument(
        "--base-port",
        type=int,
        default=10911,
        metavar="PORT",
        help="of the first broker; default: %(default)s",
    )
    parser.add_argument(
        "--console-port",
        type=int,
        default=8080,
        metavar="PORT",
        help="of the console, or the next one that is free; 0: no console; default: %(default)s",
    )
    parser.add_argument(
        "--ready-file", type=Path, metavar="FILE", help="receives the addresses as JSON"
    )
    parser.add_argument(
        "--round-trip", action="store_true", help="send and consume one message when ready"
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="setting of all brokers; namesrv.key=value: of the name server",
    )


class Cluster:
    """The children, what is printed about them, and the ready file."""

    def __init__(self, options: argparse.Namespace, data: Path) -> None:
        self.is_stopping = False
        self.exit_code = 0
        self._data = data
        self._ready_file: Path | None = options.ready_file
        self._round_trip: bool = options.round_trip
        self._is_ready = False
        self._said: dict[str, str] = {}
        # Set when all shall stop.
        self._is_over = asyncio.Event()
        # The message there and back, while it is under way.
        self._trip: asyncio.Task[None] | None = None
        broker_settings, namesrv_settings = split_settings(parse_settings(options.settings))
        if broker_settings.get(_ACL) == "true" and _SECRET_FILE not in broker_settings:
            broker_settings[_SECRET_FILE] = str(_make_secret(data))
        # Plain connections are closed: the round trip takes TLS, too.
        self._round_trip_tls = (
            broker_settings.get(TLS_FILE) if broker_settings.get(TLS_MODE) == "enforcing" else None
        )
        self.namesrv_address = f"{HOST}:{options.namesrv_port}"
        (data / "logs").mkdir(parents=True, exist_ok=True)
        words = self._namesrv_words(options.namesrv_port, namesrv_settings)
        self._namesrv = Child(self, "namesrv", words, self.namesrv_address)
        peers = ";".join(
            f"n{i}-{HOST}:{options.base_port + NODE_PORT_STEP * i + DLEDGER_PORT_STEP}"
            for i in range(options.nodes)
        )
        self._brokers = []
        for i in range(options.nodes):
            port = options.base_port + NODE_PORT_STEP * i
            words = self._broker_words(i, port, peers, broker_settings)
            self._brokers.append(Child(self, f"n{i}", words, f"{HOST}:{port}"))
        # A process of its own, so that it goes on when brokers are killed.
        self._console: Child | None = None
        if options.console_port:
            words = self._console_words(options.console_port)
            self._console = Child(self, "console", words, f"{HOST}:{options.console_port}")

    def _console_words(self, port: int) -> list[str]:
        words = ["console", "--json", "--until-stdin-closes", "--next-port"]
        words += ["-n", self.namesrv_address, "--listen", f"{HOST}:{port}"]
        words += ["--log-dir", str(self._data / "logs")]
        words += ["--audit-file", str(self._data / "console-audit.jsonl")]
        if self._round_trip_tls is not None:
            words += ["--tls-config", self._round_trip_tls]
        return words

    @property
    def _children(self) -> list[Child]:
        """All, in the order of their starts."""
        consoles = [] if self._console is None else [self._console]
        return [self._namesrv, *self._brokers, *consoles]

    def _namesrv_words(self, port: int, settings: dict[str, str]) -> list[str]:
        keys = {
            "listenPort": str(port),
            "kvConfigPath": str(self._data / "namesrv" / "kvConfig.json"),
            "bindAddress": HOST,
            **settings,
        }
        return ["namesrv", "--json", "--until-stdin-closes", *_words(keys)]

    def _broker_words(self, i: int, port: int, peers: str, settings: dict[str, str]) -> list[str]:
        keys = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerIP1": HOST,
            "listenPort": str(port),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": str(self._data / f"n{i}"),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{i}",
            **SMALL_STORE,
            **settings,
            **_own_http_port(i, settings),
        }
        return ["broker", "--json", "--until-stdin-closes", *_words(keys)]

    def log_path(self, name: str) -> Path:
        """The log file of a child."""
        return self._data / "logs" / f"{name}.log"

    async def run(self) -> None:
        """Starts all children, and stops them after a signal or when one cannot start."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._is_over.set)
        # A shell that starts a program in the background has it ignore Ctrl-C.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGINT, self._is_over.set)
        # The terminal is closed; nohup has that ignored.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._is_over.set)
        loop.add_signal_handler(signal.SIGCHLD, self._look)
        _tell(f"data in {self._data}")
        for child in self._children:
            child.launch()
        loop.call_later(TROUBLE_PATIENCE_S, self._tell_troubles)
        loop.call_later(READY_PATIENCE_S, self._tell_if_not_ready)
        await self._is_over.wait()
        self.is_stopping = True
        await asyncio.gather(*(child.end() for child in self._children))

    def _tell_troubles(self) -> None:
        """What a broker waits for is in its log, and nobody looks there by himself."""
        if self._is_ready or self.is_stopping:
            return
        for broker in self._brokers:
            if broker.pid is not None and (trouble := broker.trouble()) is not None:
                _tell(f"{broker.name:<8} not ready: {trouble}")

    def _tell_if_not_ready(self) -> None:
        if not self._is_ready and not self.is_stopping:
            _tell(
                f"not ready after {READY_PATIENCE_S:g} s: no leader serves that the name server "
                f"knows; see {self._data / 'logs'}"
            )

    def _look(self) -> None:
        """Some process has ended."""
        for child in self._children:
            child.look()

    def changed(self, child: Child) -> None:
        """A child told a new state: print it, keep the ready file true."""
        address = child.url or child.address
        text = f"{child.name:<8} {address:<16} pid {child.pid}  {child.role}"
        if child.role != STARTING and self._said.get(child.name) != text:
            self._said[child.name] = text
            _tell(text)
        self._look_whether_ready()

    def _look_whether_ready(self) -> None:
        """Ready is a cluster that takes messages; of a console it is known by then where it is."""
        console = self._console
        is_shown = console is None or console.url is not None or console.deaths > 0
        is_serving = any(broker.is_ready for broker in self._brokers)
        if not self._is_ready and is_serving and is_shown:
            self._is_ready = True
            self._write_ready_file()
            _tell("ready")
            if self._round_trip:
                self._trip = asyncio.get_running_loop().create_task(self._make_round_trip())
        elif self._is_ready:
            self._write_ready_file()

    def died(self, child: Child, reason: str, exit_code: int, delay_s: float) -> bool:
        """A child ended without being asked; False when it shall not be started again."""
        self._said.pop(child.name, None)
        is_needed = child is not self._console
        # Its settings come from here: with the same ones it would end in the same way.
        is_refused = exit_code == EXIT_CONFIG
        has_failed = not self._is_ready and child.deaths >= FAILED_STARTS_MAX
        if is_needed and (is_refused or has_failed):
            if not self.is_stopping:
                tell = refuse if is_refused else fail
                self.exit_code = tell(f"{child.name} does not start: {reason}")
                self.is_stopping = True
                self._is_over.set()
            return False
        what_next = "not started again" if is_refused else f"starts again in {delay_s:g} s"
        _tell(f"{child.name:<8} ended: {reason}; {what_next}; see {self.log_path(child.name)}")
        if self._is_ready:
            self._write_ready_file()
        elif not is_needed:
            self._look_whether_ready()
        return not is_refused

    def killed(self, child: Child) -> None:
        """A child did not stop; its store is as after a crash."""
        _tell(
            f"{child.name:<8} did not stop in {STOP_PATIENCE_S:g} s, killed; "
            f"see {self.log_path(child.name)}"
        )
        self.exit_code = 1

    async def _make_round_trip(self) -> None:
        # Loaded when it is needed: the supervisor itself has no use for a client.
        trip = importlib.import_module("ledgermq.cli.round_trip")
        try:
            text = await trip.check_round_trip(self.namesrv_address, self._round_trip_tls)
        except Exception as error:
            self.exit_code = fail(f"round trip failed: {error}")
        else:
            _tell(text)

    def _write_ready_file(self) -> None:
        if self._ready_file is None:
            return
        brokers = []
        for broker in self._brokers:
            host, port = broker.address.split(":")
            brokers.append(
                {
                    "id": broker.name,
                    "pid": broker.pid,
                    "address": broker.address,
                    "dledger": f"{host}:{int(port) + DLEDGER_PORT_STEP}",
                    "role": broker.role,
                }
            )
        console = None if self._console is None else self._console.url
        document = {"namesrv": self.namesrv_address, "console": console, "brokers": brokers}
        # Others may enter its folder: what is there under that name, a link of theirs perhaps, goes
        # and is not written to.
        partial = self._ready_file.with_name(self._ready_file.name + ".tmp")
        partial.unlink(missing_ok=True)
        with partial.open("x") as file:
            file.write(json.dumps(document, indent=1) + "\n")
        partial.replace(self._ready_file)


def _make_secret(data: Path) -> Path:
    """Makes the secret of the group, or leaves the one of an earlier run; returns its file."""
    path = data / "group.secret"
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
    return path


def _own_http_port(i: int, settings: dict[str, str]) -> dict[str, str]:
    """Where a port for health and metrics is asked for, each node has one of its own."""
    first = settings.get("httpPort", "0")
    if not first.isdecimal() or int(first) == 0:
        return {}
    return {"httpPort": str(int(first) + NODE_PORT_STEP * i)}


def _words(keys: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]


def run(options: argparse.Namespace) -> int:
    """Runs the cluster until a signal; returns the exit code."""
    reason = _find_refusal(options)
    if reason is not None:
        return fail(reason)
    use_private_files()
    temporary = options.data is None
    try:
        data = Path(tempfile.mkdtemp(prefix="ledgermq-")) if temporary else options.data.absolute()
        if options.ready_file is not None:
            # A file left by an earlier run must not be taken for ours.
            options.ready_file.unlink(missing_ok=True)
        cluster = Cluster(options, data)
    except OSError as error:
        return fail(str(error))
    try:
        asyncio.run(cluster.run())
    finally:
        if temporary:
            shutil.rmtree(data, ignore_errors=True)
    return cluster.exit_code


def _tell(text: str) -> None:
    """Prints a line; where nobody reads any more the cluster goes on, and is stopped in order."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")


def _find_refusal(options: argparse.Namespace) -> str | None:
    """Says why no cluster can be started as wanted; None when nothing speaks against it."""
    if not 1 <= options.nodes <= 9:
        return f"--nodes is {options.nodes}; allowed: 1 to 9"
    last = options.base_port + NODE_PORT_STEP * (options.nodes - 1)
    highest = PORT_MAX - DLEDGER_PORT_STEP - NODE_PORT_STEP * (options.nodes - 1)
    if not 1 <= options.base_port <= highest:
        return (
            f"--base-port is {options.base_port}; allowed: 1 to {highest}, because the ledger "
            f"ports are {DLEDGER_PORT_STEP} above"
        )
    if not 0 <= options.console_port <= PORT_MAX:
        return f"--console-port is {options.console_port}; allowed: 0 to {PORT_MAX}"
    if not 1 <= options.namesrv_port <= PORT_MAX:
        return f"--namesrv-port is {options.namesrv_port}; allowed: 1 to {PORT_MAX}"
    ports = range(options.base_port, last + 1, NODE_PORT_STEP)
    if options.namesrv_port in ports or options.namesrv_port - DLEDGER_PORT_STEP in ports:
        return f"--namesrv-port {options.namesrv_port} is also the port of a node"
    try:
        parse_settings(options.settings)
    except ValueError as error:
        return str(error)
    for option, port in [
        ("--namesrv-port", options.namesrv_port),
        *(("--base-port", port) for port in ports),
        *(("--base-port", port + DLEDGER_PORT_STEP) for port in ports),
    ]:
        if not _is_free(port):
            return f"port {port} is in use; take others: ledgermq up {option} PORT"
    ready_file = options.ready_file
    if ready_file is not None and not ready_file.absolute().parent.is_dir():
        return f"--ready-file {ready_file}: its directory does not exist"
    return None


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
