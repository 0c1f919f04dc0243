"""What an account was let wait for, and be a member of, ends with its rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from tests.attack.closed_broker import ROOT, SHOP, THIEF, ask, beat, closed_broker
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.processes import LiveProgram

PULL = RequestCode.PULL_MESSAGE.value
GROUP = "shared-readers"
# A pull that waits, and says itself what it wants.
_WAITS = "6"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[LiveProgram]:
    with closed_broker(tmp_path) as running:
        yield running.wait_until_serving()


def test_pull_that_waits_gets_nothing_when_its_account_has_lost_its_right(
    program: LiveProgram,
) -> None:
    with WireClient(program.address) as root, WireClient(program.address) as thief:
        assert ask(root, ROOT, RequestCode.SEND_MESSAGE, send_fields("stock", 0), b"0").code == 0
        waits = pull_fields(
            "stock", 0, 1, consumerGroup=GROUP, sysFlag=_WAITS, suspendTimeoutMillis="60000"
        )
        thief.ask_later(PULL, THIEF.signed(waits, b"", PULL))
        # It is answered behind the pull, so that one waits by now.
        shown = THIEF.signed({"topic": "stock", "queueId": "0"}, b"", 30)
        thief.ask_later(RequestCode.GET_MAX_OFFSET.value, shown)
        first = thief.read()
        assert first is not None and (first.ext_fields or {})["offset"] == "1"
        less = {"accessKey": THIEF.access_key, "admin": "false", "topicPerms": "bait=PUB|SUB"}
        changed = ask(root, ROOT, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, less)
        assert changed.code == 0, changed.remark
        sent = ask(root, SHOP, RequestCode.SEND_MESSAGE, send_fields("stock", 0), b"of others")
        assert sent.code == 0, sent.remark
        answer = thief.read()
        assert answer is not None and answer.body == b""
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        again = ask(thief, THIEF, RequestCode.PULL_MESSAGE, waits)
        assert "topic:stock" in str(again.remark)


def test_client_leaves_its_groups_with_its_account(program: LiveProgram) -> None:
    with WireClient(program.address) as root, WireClient(program.address) as thief:
        assert beat(thief, THIEF, "thief@1", consumers=(GROUP,)).code == 0
        assert beat(root, SHOP, "shop@1", consumers=(GROUP,)).code == 0
        gone = ask(root, ROOT, RequestCode.DELETE_ACL_CONFIG, {"accessKey": THIEF.access_key})
        assert gone.code == 0, gone.remark
        # Notices that the group has changed may come before the end.
        while thief.read() is not None:
            pass
        fields = {"consumerGroup": GROUP}
        members = ask(root, SHOP, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        assert b"shop@1" in members.body and b"thief@1" not in members.body
