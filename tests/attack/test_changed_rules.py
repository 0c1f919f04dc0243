"""Whose account has another secret, or lost a right, is no member any more: rules are followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask, beat, closed_broker
from tests.e2e.wire_client import WireClient
from tests.processes import LiveProgram
from tests.waiting import wait_until

_GROUP = "shared-readers"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[LiveProgram]:
    with closed_broker(tmp_path) as running:
        yield running.wait_until_serving()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("secretKey: secret-of-thief", "secretKey: another-secret-of-thief"),
        ("groupPerms: [shared-readers=SUB]", "groupPerms: [others=SUB]"),
        ("accessKey: thief-app", "accessKey: someone-else"),
    ],
    ids=["another secret", "no right to the group", "no account"],
)
def test_member_that_would_not_be_let_in_is_none(
    program: LiveProgram, tmp_path: Path, old: str, new: str
) -> None:
    rules = tmp_path / "plain_acl.yml"
    with (
        WireClient(program.address) as thief,
        WireClient(program.address) as shop,
        WireClient(program.address) as root,
    ):

        def members() -> str:
            fields = {"consumerGroup": _GROUP}
            return ask(root, ROOT, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields).body.decode()

        assert beat(thief, THIEF, "thief@1", consumers=(_GROUP,)).code == 0
        assert beat(shop, SHOP, "shop@1", consumers=(_GROUP,)).code == 0
        assert "thief@1" in members() and "shop@1" in members()
        head, _, tail = rules.read_text().partition("- accessKey: thief-app")
        rules.write_text(head + ("- accessKey: thief-app" + tail).replace(old, new))
        wait_until(lambda: "thief@1" not in members(), what="the member to be none any more")
        assert "shop@1" in members()


def test_member_whose_account_has_more_rights_goes_on(program: LiveProgram, tmp_path: Path) -> None:
    rules = tmp_path / "plain_acl.yml"
    with WireClient(program.address) as thief:
        assert beat(thief, THIEF, "thief@1", consumers=(_GROUP,)).code == 0
        text = rules.read_text()
        rules.write_text(
            text.replace("topicPerms: [bait=PUB|SUB,", "topicPerms: [bait=PUB|SUB, b=PUB,")
        )

        def has_new_right() -> bool:
            fields = {"topic": "b", "queueId": "0"}
            told = ask(thief, THIEF, RequestCode.GET_MAX_OFFSET, fields)
            return "needs" not in str(told.remark)

        wait_until(has_new_right, what="the new right")
        fields = {"consumerGroup": _GROUP}
        told = ask(thief, THIEF, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        assert b"thief@1" in told.body
