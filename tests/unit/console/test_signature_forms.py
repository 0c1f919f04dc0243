"""Which form of signature a console gives to the brokers that it asks who is let in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.console.remote import Remote
from ledgermq.console.sessions import Session, Sessions
from ledgermq.console.shapes.session import SignIn
from ledgermq.http.replies import RequestError
from ledgermq.protocol import codes
from ledgermq.protocol.route import BrokerData, ClusterInfo

SET = "10.0.0.9:9876"
WRONG = "Check signature failed for accessKey=root"
LATE = f"{WRONG}: it was signed 3600000 ms ago by the clocks of both machines"
RULES = b'{"plainAccessConfigs": [{"accessKey": "root", "admin": true}]}'
BUSY = int(codes.ResponseCode.SYSTEM_BUSY)


class Brokers:
    """The brokers of one set of name servers by address, and what they were shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **kinds: str) -> None:
        self.kinds = kinds
        # Forms in which a broker was shown the right secret.
        self.forms: dict[str, set[str]] = {}
        monkeypatch.setattr(Remote, "call", lambda remote, *asked: self.call(remote, *asked))
        monkeypatch.setattr(Remote, "call_name_server", lambda *_: self.registered())

    async def registered(self) -> Any:
        groups = {one: BrokerData("c", one, {0: one}) for one in self.kinds}
        info = ClusterInfo(groups, {"c": list(groups)})
        return SimpleNamespace(body=info.encode())

    async def call(self, remote: Remote, address: str, code: int) -> Any:
        who = remote.config.credentials
        assert who is not None
        is_right = who.secret_key == "the-right-secret"
        if is_right:
            self.forms.setdefault(address, set()).add(who.form)
        match self.kinds[address]:
            case "silent":
                raise UnreachableError("no answer in 5 s", broker=address)
            case "busy":
                raise RefusedError(BUSY, "busy", broker=address)
            case "late" if is_right and who.form == "strong":
                raise RefusedError(1, LATE, broker=address)
            case "ledgermq" | "late" if is_right:
                return SimpleNamespace(body=RULES)
            case "apache" if is_right and who.form == "stock":
                return SimpleNamespace(body=RULES)
            case _:
                raise RefusedError(1, WRONG, broker=address)

    def shown(self, form: str) -> set[str]:
        return {address for address, forms in self.forms.items() if form in forms}


def sessions_of(**options: Any) -> Sessions:
    return Sessions(
        [SET],
        ClientConfig(),
        lambda: 0,
        must_sign_in=True,
        read_only=False,
        readers=frozenset(),
        **options,
    )


async def sign_in(one: Sessions) -> Session:
    return await one.sign_in(SignIn(access_key="root", secret_key="the-right-secret"), "10.0.0.1")


async def refused(one: Sessions) -> RequestError:
    with pytest.raises(RequestError) as error:
        await sign_in(one)
    assert error.value.status == 401
    return error.value


@pytest.mark.parametrize("kind", ["silent", "busy", "late"])
def test_who_refuses_gets_no_stock_signature_beside_one_that_may_know_the_strong_form(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A stock signature has no time and names no broker: it counts at the others, and for ever."""
    brokers = Brokers(monkeypatch, true=kind, other="refusing")

    async def check() -> None:
        told = (await refused(sessions_of())).message
        assert brokers.shown("stock") == set() and brokers.shown("strong") == {"true", "other"}
        # In a cluster of Apache's alone nobody comes in meanwhile: what may be wrong is told.
        assert ("clocks" in told, "silent" in told) == (kind == "late", kind != "late")

    asyncio.run(check())


def test_where_nobody_knows_the_strong_form_the_stock_one_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, one="apache", two="apache")

    async def check() -> None:
        one = sessions_of()
        session = await sign_in(one)
        assert session.role == "admin" and brokers.shown("stock") == {"one", "two"}
        assert await one.find(session.id) is session
        await one.close()

    asyncio.run(check())


def test_where_the_strong_form_was_let_in_once_no_other_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the true ones are gone from the name servers, too."""
    brokers = Brokers(monkeypatch, true="ledgermq")

    async def check() -> None:
        one = sessions_of()
        assert (await sign_in(one)).role == "admin"
        brokers.kinds = {"other": "refusing"}
        await refused(one)
        assert brokers.shown("stock") == set()
        await one.close()

    asyncio.run(check())


def test_a_console_may_be_told_to_give_no_stock_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, one="apache")

    async def check() -> None:
        await refused(sessions_of(signature="strong"))
        assert brokers.shown("stock") == set()

    asyncio.run(check())
