"""What clients and tools of RocketMQ 5.x ask of a broker beyond those of 4.9."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.protocol.codes import ResponseCode
from tests.e2e.live_program import LiveProgram, broker
from tests.e2e.wire_client import WireClient


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with broker(tmp_path_factory.mktemp("broker"), "flushDiskType=ASYNC_FLUSH") as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def test_message_with_a_timer_is_refused_and_not_delivered_at_once(client: WireClient) -> None:
    assert client.send("Timed", 0, b"before").code == 0
    for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
        answer = client.send("Timed", 0, b"body", properties=f"{name}\x0160")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert name in (answer.remark or "") and "no timers" in (answer.remark or "")
    assert [record.body for record in client.read_queue("Timed", 0)] == [b"before"]
