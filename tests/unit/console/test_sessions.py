"""Whose session ends when one more has to have room, and who may try to sign in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.console import sessions
from ledgermq.console.audit import Audit
from ledgermq.console.desk import Desk
from ledgermq.console.prover import Prover, Standing
from ledgermq.console.sessions import Session, Sessions
from ledgermq.console.shapes.session import SignIn
from ledgermq.console.tally import Tally
from ledgermq.http.replies import RequestError
from ledgermq.http.requests import Request
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials

NO_ONE = Credentials(access_key="root", secret_key="the-right-secret")
ADMIN = b'{"plainAccessConfigs": [{"accessKey": "root", "admin": true}]}'
USER = b'{"plainAccessConfigs": [{"accessKey": "root", "admin": false}]}'


class Brokers:
    """What brokers answer, by address: to all requests of one secret, and to who asks for rules."""

    config, name_servers = ClientConfig(), "127.0.0.1:1"

    def __init__(self, **rules: Exception | bytes) -> None:
        self.rules = rules

    async def call(self, address: str, code: int) -> Any:
        answer = self.rules[address] if code == RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG else b""
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(body=answer)

    async def close(self) -> None: ...


class Deaf(Brokers):
    """What they answer to a wrong secret; one lets everybody in."""

    async def call(self, address: str, code: int) -> Any:
        if address != "open":
            raise RefusedError(16, "wrong")


class KnownBySecret(Prover):
    """Brokers that know every account by one secret."""

    async def prove(self, name_servers: str, who: Credentials, tally: Tally) -> Standing | None:
        if who.secret_key != "the-right-secret":
            raise RequestError(401, "wrong")
        return Standing(who, "user")


class Bench(Sessions):
    """The sessions of a console of such brokers."""

    def __init__(self) -> None:
        super().__init__(
            ["127.0.0.1:1"],
            ClientConfig(),
            lambda: 0,
            must_sign_in=True,
            read_only=False,
            readers=frozenset(),
        )
        self._prover = KnownBySecret(ClientConfig())

    async def begin(self, account: str, peer: str = "10.0.0.1") -> Session:
        wanted = SignIn(access_key=account, secret_key="the-right-secret")
        return await self.sign_in(wanted, peer)

    async def status(self, peer: str, secret: str = "a-wrong-secret") -> int:
        try:
            await self.sign_in(SignIn(access_key="somebody", secret_key=secret), peer)
        except RequestError as error:
            return error.status
        return 200

    def those_of(self, account: str) -> list[str]:
        return [one.id for one in self._sessions.values() if one.account == account]


def test_an_account_with_so_many_sessions_ends_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for more, and the eldest one is another's."""
    monkeypatch.setattr(sessions, "_TRIES_MAX", 1000)

    async def check() -> None:
        bench = Bench()
        eldest = await bench.begin("eldest")
        begun = [(await bench.begin("many")).id for _ in range(45)]
        assert bench.those_of("many") == begun[5:] and len(begun[5:]) == 40
        assert bench.those_of("eldest") == [eldest.id]

    asyncio.run(check())


def test_where_all_places_are_taken_who_has_the_most_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_TRIES_MAX", 1000)
    monkeypatch.setattr(sessions, "_ALL_TRIES_MAX", 1000)

    async def check() -> None:
        bench = Bench()
        few = [(await bench.begin("few")).id for _ in range(3)]
        for number in range(5):
            for _ in range(39 + (number == 1)):
                await bench.begin(f"many-{number}")
        # Two hundred are there, of which none is used as long ago as those of who has few.
        assert bench.those_of("few") == few
        assert len(bench._sessions) == 199
        most = bench.those_of("many-1")
        for number in range(2):
            await bench.begin(f"late-{number}")
        assert bench.those_of("few") == few
        assert len(bench._sessions) == 200 and bench.those_of("many-1") == most[1:]

    asyncio.run(check())


def test_an_address_that_is_known_has_no_more_tries_than_another() -> None:
    async def check() -> None:
        bench = Bench()
        assert await bench.status("10.0.0.1", "the-right-secret") == 200
        assert [await bench.status("10.0.0.1") for _ in range(6)] == [401] * 4 + [429] * 2

    asyncio.run(check())


def test_tries_of_one_network_of_ipv6_count_together() -> None:
    async def check() -> None:
        bench = Bench()
        tried = [await bench.status(f"2001:db8::{number}") for number in range(1, 8)]
        assert tried == [401] * 5 + [429] * 2
        assert await bench.status("2001:db8:0:1::1") == 401

    asyncio.run(check())


class Late(Prover):
    """Brokers that answer nothing, or never."""

    answer: Exception | None = None

    async def prove(self, name_servers: str, who: Credentials, tally: Tally) -> Standing | None:
        if self.answer is not None:
            raise self.answer
        await asyncio.Event().wait()
        return None


def late_bench(answer: Exception | None = None) -> Bench:
    bench, prover = Bench(), Late(ClientConfig())
    bench._prover, prover.answer = prover, answer
    return bench


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (RequestError(502, "silent"), [502] * 7),
        (RequestError(403, "no"), [403] * 5 + [429] * 2),
        (UnreachableError("silent"), [502] * 7),
    ],
)
def test_a_try_is_given_back_where_nobody_could_tell(
    answer: Exception, statuses: list[int]
) -> None:
    async def status(bench: Bench) -> int:
        try:
            return await bench.status("10.0.0.1")
        except UnreachableError:
            return 502

    async def check() -> None:
        bench = late_bench(answer)
        assert [await status(bench) for _ in range(7)] == statuses

    asyncio.run(check())


def test_a_try_that_is_broken_off_counts_and_is_noted() -> None:
    async def check() -> None:
        bench, audit, nobody = late_bench(), Audit(None), cast(Any, None)
        desk = Desk(bench, audit, nobody, nobody, lambda: 7)
        body = b'{"access_key": "somebody", "secret_key": "a-wrong-secret"}'
        headers = {"content-type": "application/json"}
        for _ in range(5):
            request = Request(method="POST", headers=headers, body=body, peer_host="10.0.0.1")
            task = asyncio.ensure_future(desk._own["sign_in"](request))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        assert await asyncio.wait_for(bench.status("10.0.0.1"), 5) == 429
        told = [(one.account, one.address, one.outcome) for one in audit.newest_first()]
        assert told == [("somebody", "10.0.0.1", "refused")] * 5

    asyncio.run(check())


@pytest.mark.parametrize(
    ("answer", "is_there"),
    [
        (ADMIN, True),
        (USER, False),
        (b"{}", False),
        (RefusedError(16, "for admins"), False),
        # Busy, away: neither tells anything of the account.
        (RefusedError(2, "busy"), True),
        (UnreachableError("no answer in 5 s"), True),
    ],
)
def test_an_admin_who_is_none_any_more_is_not_what_he_was(
    answer: Exception | bytes, is_there: bool
) -> None:
    brokers = Brokers(judge=ADMIN, open=RefusedError(1, "no rules"))

    class Court(Prover):
        def _wrong_one(self, name_servers: str, credentials: Credentials) -> Any:
            assert (name_servers, credentials) == (brokers.name_servers, NO_ONE)
            return Deaf()

    async def check() -> None:
        prover, admin = Court(ClientConfig(), ("judge", "open")), Standing(NO_ONE, "admin")
        assert await prover.is_still(cast(Any, brokers), admin)
        brokers.rules["judge"] = answer
        assert await prover.is_still(cast(Any, brokers), admin) == is_there
        # Whoever was none stays what he is.
        assert await prover.is_still(cast(Any, brokers), Standing(NO_ONE, "user"))

    asyncio.run(check())
