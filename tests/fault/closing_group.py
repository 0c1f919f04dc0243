"""A group goes from open to closed under load, step by step as docs/security.md says, and back.

    python -m tests.fault.closing_group [--rounds 3]

Clients have their account from the beginning, and send and consume all the time. No send may fail,
nothing that was acknowledged may be missing, each message is consumed; in the end nobody without
an account and a certificate is answered on any port.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import yaml

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    Credentials,
    Message,
    MessageQueue,
    NameServerError,
    NoRouteError,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    load_client_tls,
)
from tests.fault.closed_ports import BROKER, NAME_SERVER, VIP, assert_closed, find_open
from tests.free_ports import free_first_port
from tests.processes import SMALL_STORE, LiveProgram, Programs, run_ledgermq
from tests.waiting import wait_until

MEMBERS: Final = ("n0", "n1", "n2")
NAME_SERVER_NAME: Final = "namesrv-0"
# What the example account of `ledgermq secure init` may use.
TOPIC: Final = "orders"
GROUP: Final = "orders"
_PAUSE_S: Final = 0.005
# How long one message may take with all its retries.
_SEND_S: Final = 30.0
_WAIT_S: Final = 90.0
# Acknowledged between two steps.
_BETWEEN: Final = 50

# What differs from the closed configuration in each step; the last step has nothing different.
_OPEN_MEMBER: Final = {
    "aclEnable": "false",
    "dLegerGroupSecretFile": "",
    "tls.config.file": "",
    "tls.server.mode": "disabled",
    "tls.ledger.config.file": "",
    "tls.enable": "false",
    "namesrvAccessKey": "",
    "namesrvSecretKeyFile": "",
}
_LETS_IN_MEMBER: Final = {
    "aclEnable": "false",
    "dLegerGroupSecretMode": "accept",
    "tls.ledger.mode": "permissive",
    "tls.server.mode": "permissive",
}
_ASKS_MEMBER: Final = {"tls.server.mode": "permissive"}
_OPEN_SERVER: Final = {
    "aclEnable": "false",
    "routeNeedsAccount": "false",
    "tls.config.file": "",
    "tls.server.mode": "disabled",
}
_LETS_IN_SERVER: Final = {
    "aclEnable": "false",
    "routeNeedsAccount": "false",
    "tls.server.mode": "permissive",
}
_ASKS_SERVER: Final = {"tls.server.mode": "permissive"}
_CLOSED: Final[dict[str, str]] = {}


class Clients:
    """A producer and a consumer with an account, from `with` until it ends."""

    def __init__(self, name: str, name_server: str, config: ClientConfig) -> None:
        self._name = name
        self._name_server = name_server
        self._config = config
        self._is_over = threading.Event()
        self._may_leave = threading.Event()
        # Body by queue and offset, of what was acknowledged; written in the clients' thread.
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failures: list[str] = []
        self.consumed: set[bytes] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def wait_for_more(self) -> None:
        """Waits until some more messages are acknowledged."""
        wanted = len(self.acked) + _BETWEEN
        wait_until(
            lambda: len(self.acked) >= wanted or self.failures,
            what=f"acknowledged messages of {self._name}",
            deadline_s=_WAIT_S,
        )
        assert self.failures == [], self.failures[:5]

    def finds_route(self) -> bool:
        """Whether a client that is new, with this one's account, is told the topic's route."""
        try:
            return bool(asyncio.run(self._find_queues()))
        except (NoRouteError, NameServerError):
            return False

    async def _find_queues(self) -> Sequence[MessageQueue]:
        settings = ConsumerConfig(client=self._config)
        async with PullConsumer(self._name_server, GROUP, config=settings) as consumer:
            return await consumer.queues(TOPIC)

    def stop_sending(self) -> None:
        """Sends no more, and goes on to consume."""
        self._is_over.set()

    def leave(self) -> None:
        """All that was sent is answered, and both clients close."""
        self._is_over.set()
        self._may_leave.set()
        self._thread.join(_SEND_S + _WAIT_S)
        assert not self._thread.is_alive(), f"{self._name} does not end"

    async def _work(self) -> None:
        try:
            await self._send_and_consume()
        except Exception as error:
            self.failures.append(repr(error))

    async def _send_and_consume(self) -> None:
        sends = ProducerConfig(client=self._config, timeout_s=_SEND_S)
        reads = ConsumerConfig(client=self._config, rebalance_interval_s=2.0)
        async with Producer(self._name_server, config=sends) as producer:
            await producer.send(Message(TOPIC, f"{self._name}-first".encode()))
            async with PushConsumer(
                self._name_server, GROUP, TOPIC, self._consume, config=reads, start="first"
            ):
                number = 0
                while not self._is_over.is_set():
                    body = f"{self._name}-{number}".encode()
                    result = await producer.submit(Message(TOPIC, body))
                    result.add_done_callback(lambda done, body=body: self._note(body, done))
                    number += 1
                    await asyncio.sleep(_PAUSE_S)
                await producer.flush()
                while not self._may_leave.is_set():
                    await asyncio.sleep(_PAUSE_S)

    def _note(self, body: bytes, done: asyncio.Future[SendResult]) -> None:
        error = done.exception()
        if error is not None:
            self.failures.append(repr(error))
            return
        self.acked[done.result().queue_id, done.result().queue_offset] = body

    async def _consume(self, message: ReceivedMessage) -> None:
        self.consumed.add(message.body)


class Account(NamedTuple):
    """An account as clients have it, with or without TLS."""

    credentials: Credentials
    tls_file: Path

    def config(self, *, is_encrypted: bool) -> ClientConfig:
        tls = load_client_tls(str(self.tls_file)) if is_encrypted else None
        return ClientConfig(credentials=self.credentials, tls=tls, route_interval_s=5.0)


class ClosingGroup(Programs):
    """A name server and three brokers, each started with some of what is in the closed files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.root = folder / "closed"
        base = free_first_port()
        self.address = f"127.0.0.1:{base + 5}"
        peers = ";".join(
            f"{name}-127.0.0.1:{base + 10 * number + 30_000}" for number, name in enumerate(MEMBERS)
        )
        words = ("--members", peers, "--name-servers", self.address)
        made = run_ledgermq("secure", "init", self.root, *words)
        assert made.returncode == 0, made.stderr

    def account(self, name: str) -> Account:
        """One of those that were made: operator or application."""
        keys = yaml.safe_load((self.root / name / "tools.yml").read_text())
        credentials = Credentials(access_key=keys["accessKey"], secret_key=keys["secretKey"])
        return Account(credentials, self.root / name / "tls.properties")

    def serve_names(self, changes: Mapping[str, str]) -> None:
        """Starts the name server, for the first time or anew."""
        self._start(NAME_SERVER_NAME, "namesrv", changes)
        self.programs[NAME_SERVER_NAME].wait_until("address")

    def serve_names_anew(self, changes: Mapping[str, str], clients: Clients) -> None:
        """Starts the name server anew; it learns the routes from the brokers, which come back."""
        self.serve_names(changes)
        wait_until(clients.finds_route, what="the route at the name server", deadline_s=_WAIT_S)
        clients.wait_for_more()

    def begin(self, changes: Mapping[str, str]) -> None:
        """Starts all members of a new group."""
        for name in MEMBERS:
            self._start(name, "broker", self._member(name, changes))
        self.wait_until_whole()

    def roll(self, changes: Mapping[str, str], clients: Clients) -> None:
        """Starts member by member anew, the leader last; it hands its leadership over."""
        leader = self.leader()
        for name in [*(name for name in MEMBERS if name != leader), leader]:
            clients.wait_for_more()
            handed_over = self._hand_overs(name)
            self._start(name, "broker", self._member(name, changes))
            self.wait_until_whole()
        assert self._hand_overs(leader) > handed_over, f"{leader} did not hand over"
        clients.wait_for_more()

    def _hand_overs(self, name: str) -> int:
        return self.programs[name].log_text().count("hands the leadership to")

    def _member(self, name: str, changes: Mapping[str, str]) -> dict[str, str]:
        tls_file = str(self.root / name / "tls.properties")
        return {"tls.ledger.config.file": tls_file, **changes}

    def _start(self, name: str, kind: str, changes: Mapping[str, str]) -> None:
        if name in self.programs:
            assert self.programs[name].stop() == 0, f"{name} did not end in order"
        small = (*SMALL_STORE, "vipChannelEnable=true") if kind == "broker" else ()
        settings = [f"{key}={value}" for key, value in changes.items()]
        words = [kind, "--json", "-c", self.root / name / f"{kind}.conf", *small, *settings]
        self.programs[name] = LiveProgram(words, self._folder / f"{name}.log")

    def wait_until_whole(self) -> None:
        """Waits until one serves and is known to the name server, and the others follow it."""

        def is_whole() -> bool:
            members = [self.programs[name] for name in MEMBERS]
            for name in MEMBERS:
                assert self.programs[name].is_running, f"{name} has ended"
            found = sorted(
                (str(one.status.get("role")), bool(one.status.get("serving"))) for one in members
            )
            known = all(one.status.get("name_servers") for one in members)
            return known and found == [("FOLLOWER", False), ("FOLLOWER", False), ("LEADER", True)]

        wait_until(is_whole, what="a leader and two followers", deadline_s=_WAIT_S)

    def leader(self) -> str:
        """Waits for the member that serves, and returns its name."""

        def find() -> str:
            serving = [name for name in MEMBERS if self.programs[name].status.get("serving")]
            return serving[0] if len(serving) == 1 else ""

        return wait_until(find, what="a leader", deadline_s=_WAIT_S)


async def read_all(name_server: str, config: ClientConfig) -> dict[tuple[int, int], bytes]:
    """All bodies of the topic by queue and offset."""
    found: dict[tuple[int, int], bytes] = {}
    settings = ConsumerConfig(client=config)
    async with PullConsumer(name_server, GROUP, config=settings) as consumer:
        for queue in await consumer.queues(TOPIC):
            offset = 0
            while (result := await consumer.pull(queue, offset)).status is PullStatus.FOUND:
                for message in result.messages:
                    found[queue.queue_id, message.queue_offset] = message.body
                offset = result.next_offset
    return found


def judge(group: ClosingGroup, everybody: Sequence[Clients], reader: ClientConfig) -> int:
    """No send failed, all that was acknowledged is in its place and consumed; returns how many."""
    failures = [failure for clients in everybody for failure in clients.failures]
    assert failures == [], f"{len(failures)} sends failed: {failures[:5]}"
    acked = {place: body for clients in everybody for place, body in clients.acked.items()}
    assert len(acked) == sum(len(clients.acked) for clients in everybody), "a place given twice"
    found = asyncio.run(read_all(group.address, reader))
    lost = [place for place, body in acked.items() if found.get(place) != body]
    assert lost == [], f"{len(lost)} of {len(acked)} are lost: {lost[:5]}"
    return len(acked)


def wait_until_consumed(everybody: Sequence[Clients]) -> None:
    """Waits until each acknowledged message was consumed by one of the clients."""

    def missing() -> set[bytes]:
        consumed = set().union(*(clients.consumed for clients in everybody))
        return {body for clients in everybody for body in clients.acked.values()} - consumed

    wait_until(lambda: not missing(), what="all messages to be consumed", deadline_s=_WAIT_S)


def assert_seen_open(group: ClosingGroup, found: Sequence[str]) -> None:
    """Before the last step plain connections are answered, though by refusals: that is seen.

    It is so at each port for clients; members have closed the ledger port to each other already.
    """
    expected = {f"{NAME_SERVER_NAME}, {NAME_SERVER}"}
    expected |= {f"{name}, {kind}" for name in MEMBERS for kind in (BROKER, VIP)}
    assert {text.partition(":")[0] for text in found} == expected, found[:10]
    assert all("in plain is answered" in text for text in found), found[:10]


def close(group: ClosingGroup, plain: Clients, encrypted: Clients) -> None:
    """From open to closed; `encrypted` clients take over from the `plain` ones."""
    group.serve_names_anew(_LETS_IN_SERVER, plain)
    group.roll(_LETS_IN_MEMBER, plain)
    group.roll(_ASKS_MEMBER, plain)
    group.serve_names_anew(_ASKS_SERVER, plain)
    with encrypted:
        encrypted.wait_for_more()
        plain.leave()
        tls_file = group.account("application").tls_file
        assert_seen_open(group, find_open(group.programs, tls_file))
        group.serve_names_anew(_CLOSED, encrypted)
        group.roll(_CLOSED, encrypted)
        assert_closed(group.programs, tls_file)
        encrypted.wait_for_more()
        encrypted.stop_sending()
        wait_until_consumed((plain, encrypted))


def open_again(group: ClosingGroup, encrypted: Clients, plain: Clients) -> None:
    """The same steps the other way round."""
    with encrypted:
        encrypted.wait_for_more()
        group.roll(_ASKS_MEMBER, encrypted)
        group.serve_names_anew(_ASKS_SERVER, encrypted)
        with plain:
            plain.wait_for_more()
            encrypted.leave()
            group.serve_names_anew(_LETS_IN_SERVER, plain)
            group.roll(_LETS_IN_MEMBER, plain)
            group.roll(_OPEN_MEMBER, plain)
            group.serve_names_anew(_OPEN_SERVER, plain)
            plain.stop_sending()
            wait_until_consumed((plain, encrypted))


def go_there(folder: Path, *, goes_back: bool = False) -> int:
    """From open to closed, and back where asked for; returns how many were acknowledged."""
    with ClosingGroup(folder) as group:
        group.serve_names(_OPEN_SERVER)
        group.begin({**_OPEN_MEMBER, "flushDiskType": "ASYNC_FLUSH"})
        account = group.account("application")
        by_plain, by_tls = account.config(is_encrypted=False), account.config(is_encrypted=True)
        plain = Clients("plain", group.address, by_plain)
        encrypted = Clients("encrypted", group.address, by_tls)
        with plain:
            plain.wait_for_more()
            close(group, plain, encrypted)
        count = judge(group, (plain, encrypted), by_tls)
        if goes_back:
            encrypted = Clients("encrypted-again", group.address, by_tls)
            plain = Clients("plain-again", group.address, by_plain)
            open_again(group, encrypted, plain)
            count += judge(group, (encrypted, plain), by_plain)
        return count


def main(words: Sequence[str] | None = None) -> int:
    """Plays the rounds; a failure is raised."""
    parser = argparse.ArgumentParser(description="a group is closed under load, and opened again")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(words)
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="ledgermq-closing-") as folder:
            acked = go_there(Path(folder), goes_back=True)
        sys.stdout.write(f"round {number + 1}: {acked} acknowledged, 0 lost, 0 failed\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
