"""A quota counts what a request holds, however the request calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.properties import format_properties
from tests.attack.closed_broker import THIEF, ask, closed_broker
from tests.e2e.wire_client import WireClient, send_fields

BATCH = encode_batch([BatchMessage(0, b"x", b"")] * 1000)
TEXT = format_properties({"note": "x" * 30_000})


@pytest.mark.parametrize(
    ("quota", "changes", "body"),
    [
        ("maxMessagesPerSecond=50", {"batch": "true"}, BATCH),
        ("maxBytesPerSecond=5000", {"properties": TEXT}, b""),
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
