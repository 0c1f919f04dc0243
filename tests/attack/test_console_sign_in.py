"""A broker of somebody else's at the name server of a console: it opens the console for nobody,
and where the console knows whom to believe, it shuts it for nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.console import sessions
from ledgermq.console.shapes.session import SignIn
from ledgermq.http.replies import RequestError
from ledgermq.protocol import signature
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import ClusterInfo
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_broker import ROOT, SHOP, closed_broker
from tests.e2e.console.api_client import Api, Refused
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram, broker, name_server
from tests.waiting import wait_until

_FORGED = """
accounts:
- {accessKey: root-app, secretKey: secret-of-a-thief, admin: true}
- {accessKey: shop-app, secretKey: secret-of-shop, admin: true}
"""


_STRANGE = "accounts:\n- {accessKey: nobody-here, secretKey: secret-of-nobody, admin: true}\n"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a broker with accounts."""
    folder = tmp_path_factory.mktemp("closed")
    with name_server(folder) as address:
        # The other one stands before it in every sorted list.
        settings = ("brokerIP1=127.0.0.2", f"namesrvAddr={address}")
        with closed_broker(folder, *settings) as honest:
            honest.wait_until_serving()
            yield address


@contextlib.contextmanager
def console_beside(
    address: str, folder: Path, *settings: str, judges: tuple[str, ...] = ()
) -> Iterator[Api]:
    """Registers another broker, and begins a console afterwards."""
    with broker(folder, *settings, namesrv=address, name="other") as other:
        other.wait_until_serving()
        wait_until(lambda: len(registered(address)) == 2, what="both brokers at the name server")
        words = ["console", "--json", "-n", address, "--listen", "127.0.0.1:0"]
        for judge in judges:
            words += ["--judge", judge]
        with LiveProgram(words, folder / "console.log") as console:
            wait_until(lambda: console.status.get("url"), what="the console")
            yield Api(console.status["url"])
    wait_until(lambda: len(registered(address)) == 1, what="the broker to be gone")


def registered(address: str) -> list[str]:
    return sorted(brokers_of(address))


def brokers_of(address: str) -> dict[str, str]:
    """Returns the address of each broker by its name."""
    with WireClient(address) as client:
        body = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO.value, {}).body
    table = ClusterInfo.decode(body).broker_addr_table
    return {name: next(iter(one.broker_addrs.values())) for name, one in table.items()}


def test_broker_that_refuses_everybody_shuts_nothing(closed: str, tmp_path: Path) -> None:
    """Where the console was told whose word counts: what others say is not even heard."""
    rules = tmp_path / "strange.yml"
    rules.write_text(_STRANGE)
    rules.chmod(0o600)
    honest = brokers_of(closed)["broker-a"]
    settings = ("aclEnable=true", f"aclFile={rules}")
    with console_beside(closed, tmp_path, *settings, judges=(honest,)) as api:
        assert api.call("get_session").sign_in_needed
        for key, secret in (("nobody-here", "secret-of-nobody"), (ROOT.access_key, "wrong-one")):
            with pytest.raises(Refused) as refused:
                api.sign_in(key, secret)
            assert refused.value.status == 401
        assert api.sign_in(ROOT.access_key, ROOT.secret_key).role == "admin"
        assert api.call("get_session").signed_in


def test_broker_that_lets_everybody_in_is_not_heard_beside_a_judge(
    closed: str, tmp_path: Path
) -> None:
    with console_beside(closed, tmp_path, judges=(brokers_of(closed)["broker-a"],)) as api:
        assert api.call("get_session").sign_in_needed
        with pytest.raises(Refused) as refused:
            api.sign_in("nobody-here", "secret-of-nobody")
        assert refused.value.status == 401


def console_sessions(address: str) -> sessions.Sessions:
    return sessions.Sessions(
        [address],
        ClientConfig(),
        lambda: time.time_ns() // 1_000_000,
        must_sign_in=False,
        read_only=False,
        readers=frozenset(),
    )


def test_console_signs_so_that_nobody_can_make_another_request_of_it(
    closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks each registered broker, whose topics and groups have names that their owner chose:
    with a stock signature the values, cut elsewhere, are any request of the admin.
    """
    wanted = SignIn(access_key=ROOT.access_key, secret_key=ROOT.secret_key)

    async def form_of(one: sessions.Sessions) -> str:
        session = await one.sign_in(wanted, "127.0.0.1")
        return session.standings[0].credentials.form

    async def check() -> None:
        one, again = console_sessions(closed), console_sessions(closed)
        assert await form_of(one) == "strong"
        # Brokers that know the strong form, and refuse it: of these that is of another hour.
        late = SimpleNamespace(time_ns=lambda: time.time_ns() - 3_600_000_000_000)
        with monkeypatch.context() as hour:
            hour.setattr(signature, "time", late)
            with pytest.raises(RequestError) as refused:
                await form_of(again)
            assert (refused.value.status, "clocks" in refused.value.message) == (401, True)
        # Brokers that do not know it, as Apache's.
        monkeypatch.setattr(signature, "sign_strongly", lambda *_: "AAAA")
        assert await form_of(again) == "stock"
        with pytest.raises(RequestError):
            await form_of(one)
        await one.close()
        await again.close()

    asyncio.run(check())


def sign_in_of(who: Credentials) -> SignIn:
    return SignIn(access_key=who.access_key, secret_key=who.secret_key)


def test_one_account_drives_out_its_own_sessions_only(
    closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_TRIES_MAX", 100)
    monkeypatch.setattr(sessions, "_SESSIONS_MAX", 6)
    monkeypatch.setattr(sessions, "_OF_ACCOUNT_MAX", 4)

    async def check() -> None:
        one = console_sessions(closed)
        roots = [await one.sign_in(sign_in_of(ROOT), "10.0.0.1") for _ in range(2)]
        shops = [await one.sign_in(sign_in_of(SHOP), "10.0.0.2") for _ in range(7)]
        found = [await one.find(session.id) for session in shops]
        assert [session is not None for session in found] == [False] * 3 + [True] * 4
        assert all([await one.find(session.id) for session in roots])
        # Who has the most gives way to who has less, be it an admin.
        roots.append(await one.sign_in(sign_in_of(ROOT), "10.0.0.1"))
        assert len([1 for session in shops if await one.find(session.id)]) == 3
        assert all([await one.find(session.id) for session in roots])
        await one.close()

    asyncio.run(check())


def test_tries_of_others_keep_nobody_out_who_was_let_in_before(
    closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_ALL_TRIES_MAX", 8)
    wrong = SignIn(access_key=ROOT.access_key, secret_key="wrong-one")

    async def status(one: sessions.Sessions, wanted: SignIn, peer: str) -> int:
        try:
            await one.sign_in(wanted, peer)
        except RequestError as error:
            return error.status
        return 200

    async def check() -> None:
        one = console_sessions(closed)
        assert await status(one, sign_in_of(ROOT), "10.0.0.1") == 200
        # Addresses without end are one network.
        tried = [await status(one, wrong, f"2001:db8::{number:x}") for number in range(1, 8)]
        assert tried == [401] * 5 + [429] * 2
        assert [await status(one, wrong, f"10.0.1.{n}") for n in range(4)] == [401, 401, 429, 429]
        assert await status(one, sign_in_of(ROOT), "10.0.0.1") == 200
        await one.close()

    asyncio.run(check())


def test_broker_that_knows_other_secrets_makes_nobody_an_admin(closed: str, tmp_path: Path) -> None:
    rules = tmp_path / "forged.yml"
    rules.write_text(_FORGED)
    rules.chmod(0o600)
    with console_beside(closed, tmp_path, "aclEnable=true", f"aclFile={rules}") as api:
        with pytest.raises(Refused) as refused:
            api.sign_in(ROOT.access_key, "secret-of-a-thief")
        assert refused.value.status == 401
        # Both know it; what it is worth says the one that gives it less.
        assert api.sign_in(SHOP.access_key, SHOP.secret_key).role == "user"


def test_broker_without_accounts_opens_nothing(closed: str, tmp_path: Path) -> None:
    with console_beside(closed, tmp_path) as api:
        assert api.call("get_session").sign_in_needed
        with pytest.raises(Refused) as refused:
            api.call("get_audit")
        assert refused.value.status == 401
        with pytest.raises(Refused) as refused:
            api.sign_in(ROOT.access_key, "secret-of-a-thief")
        assert refused.value.status == 401
        assert api.sign_in(ROOT.access_key, ROOT.secret_key).role == "admin"


def test_cluster_that_stops_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What was found out counts for a minute; here it is asked for anew at once.
    monkeypatch.setattr(sessions, "_MINUTE_S", 0.0)

    async def check() -> None:
        with contextlib.ExitStack() as stack:
            address = stack.enter_context(name_server(tmp_path))
            one = console_sessions(address)
            program = stack.enter_context(closed_broker(tmp_path, f"namesrvAddr={address}"))
            program.wait_until_serving()
            wait_until(lambda: registered(address), what="the broker at the name server")
            assert await one.needs_account()
        assert await one.needs_account()
        assert await one.find(None) is None
        await one.close()

    asyncio.run(check())
