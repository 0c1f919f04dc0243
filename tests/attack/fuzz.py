"""Frames that are almost right, against a broker, its ledger, a master's HA port and a name server.

    python -m tests.attack.fuzz [--ports broker,ledger,ha,namesrv] [--cases N] [--seed S] [--closed]

All four run in this process, with disks and timers as ever. Their ports hand over what makes their
connections; a case is a connection without a socket that gets some bytes, so that thousands pass in
a second. What must hold, whatever comes: nothing is raised that the program did not foresee, the
process goes on, its memory stays bounded, and a valid request is answered afterwards.

`--closed` gives them accounts and a secret of the group; cases are signed then (`signed_cases.py`).

A case that breaks something is printed as a line for `corpus/broken.txt`. Ends with 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import deferLater
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.service import BrokerService
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.service import NamesrvService
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from tests.attack import frames, signed_cases
from tests.attack.mutations import mutated
from tests.attack.signed_cases import greet_as_slave
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE

reactor: Any = installed_reactor

_CASES_A_TURN: Final = 25
_CASES_BETWEEN_CHECKS: Final = 250
_GROWTH_BYTES_MAX: Final = 256 << 20
_ANSWER_S: Final = 20.0


class Link(StringTransport):
    """A connection without a socket: what is written is counted, not kept."""

    def __init__(self, host: str, protocol: Any) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", host, 40_000))
        self._protocol = protocol
        self._handle = socket.socket()
        self.written_bytes = 0
        self.is_open = True
        # What was written while it is to be kept.
        self.kept, self.keeps = b"", False

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        if self.keeps:
            self.kept += data

    def writeSequence(self, data: Any) -> None:
        self.written_bytes += sum(map(len, data))

    def getHandle(self) -> socket.socket:
        return self._handle

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def loseConnection(self) -> None:
        self.close()

    def abortConnection(self) -> None:
        self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._handle.close()
            reactor.callLater(0, self._protocol.connectionLost, Failure(ConnectionDone()))


class Ports:
    """A reactor that remembers what listens where."""

    def __init__(self) -> None:
        self.factories: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)

    def listenTCP(self, port: int, factory: Any, *args: Any, **options: Any) -> Any:
        listening = reactor.listenTCP(port, factory, *args, **options)
        self.factories[listening.getHost().port] = factory
        return listening


class Target:
    """One port: what makes its connections, and what must be answered there."""

    def __init__(
        self, name: str, factory: Any, valid: bytes, *, is_closed: bool, secret: bool = False
    ) -> None:
        """`secret`: who connects proves it first, mostly."""
        self.name, self._factory, self._valid = name, factory, valid
        self._is_closed, self._has_secret = is_closed, secret
        self._hosts = 0
        # Cases to which something was written.
        self.answered_count = 0

    def connect(self) -> tuple[Any, Link]:
        """Returns a protocol and its transport; every connection comes from another address."""
        self._hosts += 1
        number = self._hosts
        host = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        protocol = self._factory.buildProtocol(IPv4Address("TCP", host, 40_000))
        assert protocol is not None, f"{self.name} takes no connection any more"
        link = Link(host, protocol)
        protocol.makeConnection(link)
        return protocol, link

    def play(self, rng: Random, data: bytes) -> Link:
        """Sends the bytes, in one chunk or in several."""
        protocol, link = self.connect()
        if self._has_secret and rng.random() < 0.9:
            greet_as_slave(protocol, link)
            link.written_bytes = 0
        start = 0
        while start < len(data) and link.is_open:
            count = len(data) if rng.random() < 0.8 else rng.randrange(1, 2000)
            protocol.dataReceived(data[start : start + count])
            start += count
        return link

    def draw(self, rng: Random, corpus: list[bytes]) -> bytes:
        """Returns the bytes of a case."""
        is_raw = self.name == "ha"
        if self._is_closed and not is_raw:
            return signed_cases.draw(rng, corpus)
        return mutated(rng, corpus, is_raw=is_raw)

    async def check(self) -> None:
        """Waits for the answer to a valid request."""
        link = self.play(Random(0), self._valid)
        left_s = _ANSWER_S
        while not link.written_bytes:
            assert left_s > 0, f"{self.name} does not answer a valid request"
            await deferLater(reactor, 0.01)
            left_s -= 0.01
        link.close()


@contextlib.contextmanager
def unforeseen() -> Iterator[list[str]]:
    """Collects what was logged with a failure: nobody had foreseen it."""
    found: list[str] = []

    def observe(event: Mapping[str, Any]) -> None:
        failure = event.get("log_failure")
        if failure is not None:
            found.append(failure.getTraceback())

    globalLogPublisher.addObserver(observe)
    try:
        yield found
    finally:
        globalLogPublisher.removeObserver(observe)


async def fuzz(target: Target, seed: int, cases: int) -> list[str]:
    """Plays what once broke something, then so many cases; returns complaints."""
    corpus = list(frames.read(target.name).values())
    for name, data in frames.broken(target.name).items():
        with unforeseen() as found:
            target.play(Random(0), data).close()
            await deferLater(reactor, 0)
        if found:
            return [f"{target.name} {name} {data.hex()}\n{found[0]}"]
    await target.check()
    begin_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for first in range(0, cases, _CASES_A_TURN):
        with unforeseen() as found:
            rng = Random(f"{target.name} {seed} {first}")
            links, played = [], []
            for _ in range(min(_CASES_A_TURN, cases - first)):
                data = target.draw(rng, corpus)
                played.append(data)
                try:
                    links.append(target.play(rng, data))
                except Exception as error:
                    return [f"{target.name} raised-{first} {data.hex()}\n{error!r}"]
                if found:
                    break
            await deferLater(reactor, 0)
            for link in links:
                target.answered_count += link.written_bytes > 0
                link.close()
            await deferLater(reactor, 0)
        if found:
            shown = [f"{target.name} seed-{seed}-{first} {data.hex()}" for data in played[-1:]]
            return ["\n".join([*shown, found[0]])]
        if first % _CASES_BETWEEN_CHECKS == 0:
            await target.check()
    await target.check()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin_kib) * 1024
    if grown > _GROWTH_BYTES_MAX:
        return [f"{target.name}: {grown} bytes more than before, allowed are {_GROWTH_BYTES_MAX}"]
    return []


class Programs:
    """The programs whose ports are attacked."""

    def __init__(self, folder: Path, *, is_closed: bool) -> None:
        self._folder, self._is_closed = folder, is_closed
        self._services: list[Any] = []

    async def start(self, wanted: str) -> Target:
        """Starts the program with a port, alone."""
        ports = Ports()
        if wanted == "namesrv":
            return await self._name_server(ports)
        ledger_port, ha_port = free_ports(2)
        settings = dict(setting.split("=") for setting in SMALL_STORE)
        settings |= {
            "brokerIP1": "127.0.0.1", "brokerName": "broker-a", "listenPort": "0",
            "storePathRootDir": str(self._folder / wanted), "flushDiskType": "ASYNC_FLUSH",
            "haListenPort": str(ha_port), "enableDLegerCommitLog": "false",
        }  # fmt: skip
        if wanted != "ha":
            settings |= {
                "enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerSelfId": "n0",
                "dLegerPeers": f"n0-127.0.0.1:{ledger_port}",
            }  # fmt: skip
        if self._is_closed:
            settings |= self._closed_settings(wanted)
        ready: Deferred[None] = Deferred()

        def serves() -> None:
            if not ready.called:
                ready.callback(None)

        service = BrokerService(load_broker_config(None, settings), ports, on_ready=serves)
        self._services.append(service)
        await service.start()
        await ready
        port = {"broker": int(service.address.rpartition(":")[2]), "ledger": ledger_port}.get(
            wanted, ha_port
        )
        while port not in ports.factories:
            # A master listens for slaves a little later.
            await deferLater(reactor, 0.01)
        valid = {
            "broker": self._request(RequestCode.GET_BROKER_RUNTIME_INFO),
            "ledger": frames.read("ledger")["hello"],
            "ha": frames.read("ha")["report-0"],
        }[wanted]
        factory, is_closed = ports.factories[port], self._is_closed
        has_secret = is_closed and wanted == "ha"
        return Target(wanted, factory, valid, is_closed=is_closed, secret=has_secret)

    def _closed_settings(self, name: str) -> dict[str, str]:
        """Accounts, and for members and slaves a secret; written to files."""
        found = {"aclEnable": "true", "aclFile": "plain_acl.yml"}
        if name != "namesrv":
            found["dLegerGroupSecretFile"] = "group.secret"
        for key, text in (
            ("aclFile", signed_cases.RULES),
            ("dLegerGroupSecretFile", signed_cases.SECRET.decode()),
        ):
            if key in found:
                path = self._folder / f"{name}-{found[key]}"
                path.write_text(text)
                path.chmod(0o600)
                found[key] = str(path)
        return found

    def _request(self, code: RequestCode) -> bytes:
        frame = encode(RemotingCommand(code=int(code), opaque=1))
        return signed_cases.signed(frame, signed_cases.ADMIN) if self._is_closed else frame

    async def _name_server(self, ports: Ports) -> Target:
        settings = {"listenPort": "0", "kvConfigPath": str(self._folder / "kv.json")}
        if self._is_closed:
            settings |= {"routeNeedsAccount": "true", **self._closed_settings("namesrv")}
        config = load_namesrv_config(None, settings)
        service = NamesrvService(config, ports)
        self._services.append(service)
        await service.start()
        valid = self._request(RequestCode.GET_BROKER_CLUSTER_INFO)
        factory = next(iter(ports.factories.values()))
        return Target("namesrv", factory, valid, is_closed=self._is_closed)

    async def stop(self) -> None:
        """Stops what was started."""
        for service in self._services:
            await service.stop()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def run(options: argparse.Namespace, folder: Path) -> int:
    """Attacks one port after the other."""
    complaints: list[str] = []
    for name in options.ports.split(","):
        programs = Programs(folder, is_closed=options.closed)
        try:
            target = await programs.start(name)
            complaints += await fuzz(target, options.seed, options.cases)
            _say(
                f"{name}: {options.cases} cases of seed {options.seed},"
                f" {target.answered_count} of them answered"
            )
        except AssertionError as error:
            complaints.append(str(error))
        finally:
            await programs.stop()
    _say("\n".join(complaints) or "good")
    return 1 if complaints else 0


def main() -> None:
    """Parses the command line and runs the reactor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", default=",".join(frames.PORTS))
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--closed", action="store_true", help="accounts and a secret; signed cases")
    options = parser.parse_args()
    codes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="ledgermq-fuzz-") as folder:

        def done(result: int | Failure) -> None:
            if isinstance(result, Failure):
                result.printTraceback(sys.stderr)
            codes.append(result if isinstance(result, int) else 1)
            reactor.stop()

        begin: Callable[[], Any] = lambda: Deferred.fromCoroutine(  # noqa: E731
            run(options, Path(folder))
        ).addBoth(done)
        reactor.callWhenRunning(begin)
        reactor.run()
    sys.exit(codes[0] if codes else 1)


if __name__ == "__main__":
    main()
