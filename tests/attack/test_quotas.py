"""A quota counts what a request holds, however the request calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import format_properties
from tests.attack.closed_broker import THIEF, ask, closed_broker
from tests.e2e.wire_client import WireClient, send_fields

BATCH = encode_batch([BatchMessage(0, b"x", b"")] * 1000)
TEXT = format_properties({"note": "x" * 30_000})


@pytest.mark.parametrize(
    ("quota", "changes", "body"),
    [
        ("maxMessagesPerSecond=50", {"batch": "true"}, BATCH),
        ("maxBytesPerSecond=300", {"properties": TEXT}, b""),
    ],
    ids=["a batch under the code of one message", "bytes in properties"],
)
def test_quota_is_not_passed_by(
    tmp_path: Path, quota: str, changes: dict[str, str], body: bytes
) -> None:
    fields = send_fields("bait", 0, **changes)
    with closed_broker(tmp_path, quota) as program:
        address = program.wait_until_serving().address
        with WireClient(address) as first, WireClient(address) as second:
            assert ask(first, THIEF, RequestCode.SEND_MESSAGE, fields, body).code == 0
            refused = ask(second, THIEF, RequestCode.SEND_MESSAGE, fields, body)
    assert quota.partition("=")[0] in str(refused.remark)


def test_what_comes_back_counts_for_who_sends_it_back(tmp_path: Path) -> None:
    """A request of 200 bytes has a message of any size stored twice."""
    fields = send_fields("bait", 0)
    with closed_broker(tmp_path, "maxBytesPerSecond=50000") as program:
        address = program.wait_until_serving().address
        with WireClient(address) as client:
            sent = ask(client, THIEF, RequestCode.SEND_MESSAGE, fields, b"x" * 40_000)
        assert sent.code == 0 and sent.ext_fields is not None
        place = decode_offset_id(sent.ext_fields["msgId"]).physical_offset
        back = {"offset": place, "group": "shared-readers", "delayLevel": 1, "unitMode": "false"}
        answers = []
        for _ in range(6):
            # One connection is held; others are not.
            with WireClient(address) as client:
                answers.append(ask(client, THIEF, RequestCode.CONSUMER_SEND_MSG_BACK, back))
    assert answers[0].code == 0, answers[0].remark
    assert any("maxBytesPerSecond" in str(answer.remark) for answer in answers)
