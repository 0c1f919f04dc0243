"""The clusters of a console: whoever chooses a name takes nobody's place."""

from __future__ import annotations

import asyncio

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.console.identity import Identity
from ledgermq.console.remote import Remote
from ledgermq.console.tally import Tally
from ledgermq.protocol.route import ClusterInfo


def clusters(
    monkeypatch: pytest.MonkeyPatch, *names_of_sets: list[str]
) -> dict[str, tuple[str, list[str]]]:
    """By id: the name that is shown, and the first broker group of it."""

    async def run() -> dict[str, tuple[str, list[str]]]:
        name_servers = [f"10.0.0.{number}:9876;10.0.1.{number}:9876" for number in (1, 2)]
        identity = Identity(name_servers, ClientConfig(), lambda: 0)
        told = dict(zip(identity.remotes, names_of_sets, strict=True))

        async def ask(self: Identity, tally: Tally, remote: Remote) -> ClusterInfo:
            return ClusterInfo({}, {name: [f"group of {name}"] for name in told[remote]})

        monkeypatch.setattr(Identity, "_ask", ask)
        try:
            found = (await identity._find())[0]
        finally:
            await identity.close()
        return {
            cluster_id: (one.name, list(one.info.cluster_addr_table[one.name]))
            for cluster_id, one in found.items()
        }

    return asyncio.run(run())


def test_ids_are_names_and_behind_them_where_others_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = clusters(monkeypatch, ["shop", "pay"], ["shop"])
    assert found == {
        "shop": ("shop", ["group of shop"]),
        "pay": ("pay", ["group of pay"]),
        "shop@10.0.0.2:9876": ("shop", ["group of shop"]),
    }


@pytest.mark.parametrize("name", ["shop;x", "shop@10.0.0.2:9876", "shop%4010.0.0.2:9876", "shop%"])
def test_no_name_stands_for_another_cluster(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = clusters(monkeypatch, ["shop", name], ["shop", name])
    assert len(found) == 4
    assert found["shop"] == ("shop", ["group of shop"])
    assert found["shop@10.0.0.2:9876"] == ("shop", ["group of shop"])
