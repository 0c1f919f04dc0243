"""A session ends when its time is over, whether somebody comes again or not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from ledgermq.client.config import ClientConfig
from ledgermq.console import server, sessions
from ledgermq.console.call import Terms
from ledgermq.console.prover import Prover, Standing
from ledgermq.console.remote import Remote
from ledgermq.console.server import ConsoleConfig, ConsoleServer
from ledgermq.console.sessions import Session, Sessions
from ledgermq.console.shapes.session import SignIn
from ledgermq.console.tally import Tally
from ledgermq.protocol.signature import Credentials


class Brokers(Prover):
    """They know every account, until they do not."""

    knows = True
    # None: nobody answers.
    asks: bool | None = True

    async def prove(self, name_servers: str, who: Credentials, tally: Tally) -> Standing | None:
        return Standing(who, "admin")

    async def is_still(self, remote: Remote, standing: Standing) -> bool:
        return self.knows

    async def asks_account(self, stranger: Remote) -> bool | None:
        return self.asks


class Console:
    """The program, without its port."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "_LOOK_S", 0.0)
        config = ConsoleConfig(
            name_servers=["127.0.0.1:1"],
            host="127.0.0.1",
            port=0,
            tls_file="",
            client=ClientConfig(),
            must_sign_in=False,
            read_only=False,
            readers=frozenset(),
            signature="any",
            host_names=(),
            behind_proxy=False,
            audit_file=None,
            next_port=False,
            terms=Terms("", None),
        )
        self.program = ConsoleServer(config, Clock(), lambda *_: None)
        self.sessions: Sessions = self.program._sessions
        self.brokers = self.sessions._prover = Brokers(ClientConfig())
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.sessions.on_end(self.ended.put_nowait)

    async def __aenter__(self) -> Console:
        self.program._begin(Deferred())
        return self

    async def __aexit__(self, *_: object) -> None:
        for loop in self.program._loops:
            loop.cancel()
        await self.sessions.close()

    async def begin(self) -> Session:
        wanted = SignIn(access_key="root", secret_key="the-right-secret")
        return await self.sessions.sign_in(wanted, "10.0.0.1")

    async def next_end(self) -> str:
        return await asyncio.wait_for(self.ended.get(), 5)


@pytest.mark.parametrize("what", ["idle", "whole", "account"])
def test_a_session_that_nobody_uses_ends(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Its browser was closed: the secret key went on to be held, and the brokers to be asked."""

    async def check() -> None:
        async with Console(monkeypatch) as console:
            one, other = await console.begin(), await console.begin()
            if what == "idle":
                one.used_s -= sessions._IDLE_S + 1
            if what == "whole":
                one.begun_s -= sessions._WHOLE_S + 1
            if what == "account":
                console.brokers.knows = False
                one.proven_s -= sessions._PROVEN_S + 1
            assert await console.next_end() == one.id
            assert list(console.sessions._sessions) == [other.id] and console.ended.empty()

    asyncio.run(check())


def test_who_is_looked_at_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with Console(monkeypatch) as console:
            one = await console.begin()
            used_s, one.proven_s = one.used_s, one.proven_s - sessions._PROVEN_S - 1
            proven_s = one.proven_s
            async with asyncio.timeout(5):
                while one.proven_s == proven_s:
                    await asyncio.sleep(0)
            assert one.used_s == used_s

    asyncio.run(check())


def test_an_open_console_that_is_closed_ends_what_was_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams and changes of nobody went on when the brokers asked for accounts."""
    monkeypatch.setattr(sessions, "_MINUTE_S", 0.0)

    async def check() -> None:
        async with Console(monkeypatch) as console:
            console.brokers.asks = False
            opened = await console.sessions.find(None)
            assert opened is not None
            renew = console.program._desk._renewed(opened)
            call = cast(Any, SimpleNamespace(_replace=lambda **_: "next"))
            assert await renew(call) == "next"
            console.brokers.asks = True
            assert await renew(call) is None
            assert await console.next_end() == "open"
            # Who comes when it is open again is somebody else.
            console.brokers.asks = False
            again = await console.sessions.find(None)
            assert again is not None and again.csrf != opened.csrf
            assert await renew(call) is None

    asyncio.run(check())
