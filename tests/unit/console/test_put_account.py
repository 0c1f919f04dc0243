"""Which brokers are told the secret of an account that an admin makes at the console."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.console.actions.brokers import plan_put_account
from ledgermq.console.actions.plan import SkippedError
from ledgermq.console.call import Terms
from ledgermq.console.cluster import ClusterView
from ledgermq.console.remote import Remote
from ledgermq.console.shapes.actions import PutAccount
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import BrokerData, ClusterInfo
from ledgermq.protocol.signature import Credentials

ADMIN = Credentials(access_key="root", secret_key="the-right-secret", form="strong")


class Brokers:
    """Of one group each: `true` asks for accounts, whoever else is there for none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.names = names
        # Secrets that a broker was told.
        self.told: dict[str, str | None] = {}
        monkeypatch.setattr(Remote, "call", lambda remote, *asked: self.call(remote, *asked))
        monkeypatch.setattr(Remote, "call_name_server", lambda *_: self.registered())

    async def registered(self) -> Any:
        groups = {one: BrokerData("c", one, {0: one}) for one in self.names}
        info = ClusterInfo(groups, {"c": list(groups)})
        return SimpleNamespace(body=info.encode())

    async def call(
        self, remote: Remote, address: str, code: int, header: Any = None, *_: object
    ) -> Any:
        who = remote.config.credentials
        if address == "true" and (who is None or who.secret_key != ADMIN.secret_key):
            raise RefusedError(1, "Check signature failed for accessKey=root")
        if address == "silent" and code != RequestCode.UPDATE_AND_CREATE_ACL_CONFIG:
            raise UnreachableError("no answer in 5 s")
        if code == RequestCode.UPDATE_AND_CREATE_ACL_CONFIG:
            self.told[address] = header.secret_key
        return SimpleNamespace(body=b"{}")


async def put(judges: tuple[str, ...], secret: str | None) -> tuple[list[str], list[str]]:
    """Returns the warnings, and the brokers that were left out."""
    remote = Remote("127.0.0.1:1", ClientConfig(credentials=ADMIN))
    call = SimpleNamespace(
        cluster=ClusterView("c", "c", remote), account="root", terms=Terms("", None, judges)
    )
    plan = await plan_put_account(
        cast(Any, call), PutAccount(access_key="new-app", secret_key=secret, topics=["a=SUB"])
    )
    left_out = []
    for step in plan.steps:
        assert step.run is not None
        try:
            await step.run()
        except SkippedError:
            left_out.append(step.target)
    return plan.warnings, left_out


@pytest.mark.parametrize("other", ["other", "silent"])
def test_who_asks_for_no_account_is_told_none(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """Whoever may register a broker was sent the secret of each new account."""
    brokers = Brokers(monkeypatch, other, "true")
    warnings, left_out = asyncio.run(put((), "the-new-secret"))
    assert brokers.told == {"true": "the-new-secret"} and left_out == [other]
    assert len(warnings) == 1 and other in warnings[0] and "true" not in warnings[0]


def test_beside_judges_nobody_else_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it looks like one that asks for accounts."""
    brokers = Brokers(monkeypatch, "other", "true")
    warnings, left_out = asyncio.run(put(("other",), "the-new-secret"))
    assert brokers.told == {"other": "the-new-secret"} and left_out == ["true"]
    assert len(warnings) == 1 and "--judge" in warnings[0] and "true" in warnings[0]


def test_rules_are_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, "other", "true")
    assert asyncio.run(put((), None)) == ([], [])
    assert brokers.told == {"other": None, "true": None}
