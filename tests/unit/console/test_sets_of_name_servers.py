"""A console of several sets of name servers: an account is at each what the brokers there say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.console.audit import Audit
from ledgermq.console.call import Terms
from ledgermq.console.desk import Desk
from ledgermq.console.remote import Remote
from ledgermq.console.routes import ROUTES
from ledgermq.console.sampler import Sampler
from ledgermq.console.sessions import COOKIE, Session, Sessions
from ledgermq.console.shapes.brokers import AuditEntry
from ledgermq.console.shapes.session import SignIn
from ledgermq.http.replies import RequestError
from ledgermq.http.requests import Request
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import BrokerData, ClusterInfo

SHOP, TEST = "10.0.0.1:9876", "10.0.0.2:9876"
AT_TEST = f"c@{TEST}"


class Account(NamedTuple):
    secret: str
    is_admin: bool


class Sets:
    """What the one broker of each set of name servers says; no accounts: it lets everybody in."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, accounts: dict[str, dict[str, Account] | None]
    ) -> None:
        self.accounts = accounts
        # Sets whose broker knows stock signatures alone, or does not answer.
        self.stock: set[str] = set()
        self.silent: set[str] = set()
        # Sets that were shown an account, by the form.
        self.shown: dict[str, set[str]] = {"strong": set(), "stock": set()}
        self.asked = 0
        monkeypatch.setattr(Remote, "call", lambda remote, *asked: self.call(remote, *asked))
        monkeypatch.setattr(Remote, "call_name_server", lambda *_: self.registered())
        monkeypatch.setattr(Sampler, "start", lambda _: None)

    async def registered(self) -> Any:
        info = ClusterInfo({"b": BrokerData("c", "b", {0: "b"})}, {"c": ["b"]})
        return SimpleNamespace(body=info.encode())

    async def call(self, remote: Remote, address: str, code: int) -> Any:
        self.asked += 1
        where, who = remote.name_servers, remote.config.credentials
        if where in self.silent:
            raise UnreachableError("no answer in 5 s")
        known = self.accounts[where]
        if known is None:
            return SimpleNamespace(body=b"{}")
        if who is None or who.access_key not in known:
            raise RefusedError(1, "No acl config")
        account = known[who.access_key]
        is_read = (who.form == "stock") or where not in self.stock
        if who.secret_key == account.secret:
            self.shown[who.form].add(where)
        if who.secret_key != account.secret or not is_read:
            raise RefusedError(1, f"Check signature failed for accessKey={who.access_key}")
        if code == RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG and not account.is_admin:
            raise RefusedError(16, "for admins")
        rule = {"accessKey": who.access_key, "admin": True}
        return SimpleNamespace(body=json.dumps({"plainAccessConfigs": [rule]}).encode())


class Console:
    """A console of both sets, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.sessions = Sessions(
            [SHOP, TEST],
            ClientConfig(),
            lambda: 0,
            must_sign_in=False,
            read_only=False,
            readers=frozenset(),
        )
        self.audit = Audit(None)
        terms = Terms("", folder)
        self.desk = Desk(self.sessions, self.audit, terms, cast(Any, None), lambda: 0)

    async def sign_in(self, key: str, secret: str, cluster: str = "") -> Session:
        wanted = SignIn(access_key=key, secret_key=secret, cluster=cluster)
        return await self.sessions.sign_in(wanted, "10.9.9.9")

    async def ask(self, session: Session | None, name: str, cluster: str) -> Any:
        route = next(one for one in ROUTES if one.name == name)
        headers = {} if session is None else {"cookie": f"{COOKIE}={session.id}"}
        request = Request(headers=headers, params={"cluster": cluster})
        return msgspec.json.decode((await self.desk._serve(route, request)).body)

    async def status(self, session: Session | None, name: str, cluster: str) -> int:
        try:
            await self.ask(session, name, cluster)
        except RequestError as error:
            return error.status
        return 200

    def note(self, account: str, cluster: str, action: str) -> None:
        self.audit.add(
            AuditEntry(
                at_ms=1, account=account, address="10.1.1.1", cluster=cluster, action=action,
                object="", outcome="done", detail="", action_id="",
            )
        )  # fmt: skip


def test_an_admin_of_one_set_is_nobody_at_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Sets(
        monkeypatch,
        {
            SHOP: {"root": Account("s", True)},
            TEST: {"tester": Account("t", True), "dev": Account("d", False)},
        },
    )

    async def check() -> None:
        console = Console(tmp_path)
        console.note("root", "c", "create_topic")
        console.note("root", "", "sign_in")
        console.note("dev", AT_TEST, "delete_topic")
        tester = await console.sign_in("tester", "t", AT_TEST)
        asked = [await console.status(tester, "get_audit", one) for one in ("c", AT_TEST, "c")]
        assert asked == [403, 200, 403]
        assert await console.status(tester, "get_actions", "c") == 403
        # Logs are of all programs on the machine.
        assert await console.status(tester, "get_log", AT_TEST) == 403
        shown = await console.ask(tester, "get_audit", AT_TEST)
        assert [one["action"] for one in shown["entries"]] == ["delete_topic"]
        await console.sessions.close()

    asyncio.run(check())


def test_one_access_key_is_two_peoples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What one of both did is not shown to the other, and neither are his rights the other's."""
    sets = Sets(
        monkeypatch,
        {SHOP: {"app": Account("s", False)}, TEST: {"app": Account("t", True)}},
    )

    async def check() -> None:
        console = Console(tmp_path)
        console.note("app", "c", "create_topic")
        console.note("app", AT_TEST, "delete_topic")
        console.note("app", "", "sign_in")
        here = await console.sign_in("app", "s")
        there = await console.sign_in("app", "t", AT_TEST)
        assert (here.role, there.role) == ("user", "admin")
        for one, cluster, action, other in (
            (here, "c", "create_topic", AT_TEST),
            (there, AT_TEST, "delete_topic", "c"),
        ):
            shown = await console.ask(one, "get_audit", cluster)
            assert [entry["action"] for entry in shown["entries"]] == [action]
            assert await console.status(one, "get_audit", other) == 403
            # A pair that was refused is not shown to the brokers there again and again.
            asked = sets.asked
            assert await console.status(one, "get_audit", other) == 403
            assert sets.asked == asked
        await console.sessions.close()

    asyncio.run(check())


def test_an_admin_everywhere_sees_what_the_console_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = {"root": Account("s", True)}
    sets = Sets(monkeypatch, {SHOP: dict(known), TEST: dict(known)})

    async def check() -> None:
        console = Console(tmp_path)
        console.note("other", "", "sign_in")
        root = await console.sign_in("root", "s")
        assert await console.status(root, "get_log", "c") == 200
        assert (await console.ask(root, "get_audit", AT_TEST))["total"] == 1
        # Where he is none any more he has to sign in anew.
        sets.accounts[TEST] = {"root": Account("s", False)}
        root.proven_s -= 61
        assert await console.status(root, "get_log", "c") == 401
        root = await console.sign_in("root", "s")
        assert await console.status(root, "get_log", "c") == 403
        sets.silent = {TEST}
        root = await console.sign_in("root", "s")
        assert await console.status(root, "get_log", "c") == 403
        assert await console.status(root, "get_audit", AT_TEST) == 502
        await console.sessions.close()

    asyncio.run(check())


def test_one_closed_set_closes_the_console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever is nobody would be shown what others did at the closed one."""
    Sets(monkeypatch, {SHOP: None, TEST: {"root": Account("s", True)}})

    async def check() -> None:
        console = Console(tmp_path)
        assert await console.sessions.needs_account()
        assert await console.status(None, "get_audit", "c") == 401
        root = await console.sign_in("root", "s")
        # Where there are no accounts nobody is an admin.
        assert await console.status(root, "get_audit", "c") == 200
        assert await console.status(root, "get_log", AT_TEST) == 403
        await console.sessions.close()

    asyncio.run(check())


def test_each_set_gets_the_form_that_it_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = {"root": Account("s", True)}
    sets = Sets(monkeypatch, {SHOP: known, TEST: known})
    sets.stock = {TEST}

    async def check() -> None:
        console = Console(tmp_path)
        root = await console.sign_in("root", "s", AT_TEST)
        assert sets.shown["stock"] == {TEST}
        assert await console.status(root, "get_audit", "c") == 200
        forms = [one.config.credentials for one in root.identity.remotes]
        assert [one and one.form for one in forms] == ["strong", "stock"]
        assert sets.shown == {"strong": {SHOP, TEST}, "stock": {TEST}}
        await console.sessions.close()

    asyncio.run(check())
