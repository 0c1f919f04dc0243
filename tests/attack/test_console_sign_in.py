"""A broker of somebody else's at the name server of a console: it opens the console for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.console import sessions
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import ClusterInfo
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
def console_beside(address: str, folder: Path, *settings: str) -> Iterator[Api]:
    """Registers another broker, and begins a console afterwards."""
    with broker(folder, *settings, namesrv=address, name="other") as other:
        other.wait_until_serving()
        wait_until(lambda: len(registered(address)) == 2, what="both brokers at the name server")
        words = ["console", "--json", "-n", address, "--listen", "127.0.0.1:0"]
        with LiveProgram(words, folder / "console.log") as console:
            wait_until(lambda: console.status.get("url"), what="the console")
            yield Api(console.status["url"])
    wait_until(lambda: len(registered(address)) == 1, what="the broker to be gone")


def registered(address: str) -> list[str]:
    with WireClient(address) as client:
        body = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO.value, {}).body
    return sorted(ClusterInfo.decode(body).broker_addr_table)


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
            one = sessions.Sessions(
                [address],
                ClientConfig(),
                lambda: time.time_ns() // 1_000_000,
                must_sign_in=False,
                read_only=False,
                readers=frozenset(),
            )
            program = stack.enter_context(closed_broker(tmp_path, f"namesrvAddr={address}"))
            program.wait_until_serving()
            wait_until(lambda: registered(address), what="the broker at the name server")
            assert await one.needs_account()
        assert await one.needs_account()
        assert await one.find(None) is None
        await one.close()

    asyncio.run(check())
