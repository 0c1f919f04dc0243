"""The audit log names who did it, whoever signs on the connection meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode
from tests.attack.closed_broker import SHOP, THIEF, ask, beat, closed_broker
from tests.e2e.wire_client import WireClient, end_fields, half_fields, send_fields
from tests.processes import LiveProgram
from tests.waiting import wait_until


@pytest.fixture
def program(tmp_path: Path) -> Iterator[LiveProgram]:
    with closed_broker(tmp_path) as running:
        yield running.wait_until_serving()


def makers(folder: Path, name: str) -> list[str]:
    """Returns the accounts that the audit log says made something."""
    lines = [line for path in folder.rglob("audit.log") for line in path.read_text().splitlines()]
    return [entry["account"] for entry in map(json.loads, lines) if entry.get("object") == name]


def test_topic_is_made_by_who_used_it_first(program: LiveProgram, tmp_path: Path) -> None:
    """It is there when its record is committed; requests behind it come before that."""
    code = RequestCode.SEND_MESSAGE.value
    made = THIEF.signed(send_fields("bait", 0), b"x", code)
    behind = SHOP.signed({"topic": "orders", "queueId": "0"}, b"", RequestCode.GET_MAX_OFFSET)
    with WireClient(program.address) as client:
        client.ask_later(code, made, b"x")
        for _ in range(20):
            client.ask_later(RequestCode.GET_MAX_OFFSET.value, behind)
        for _ in range(21):
            assert client.read() is not None
    wait_until(lambda: makers(tmp_path, "topic bait"), what="the line of the topic")
    assert makers(tmp_path, "topic bait") == [THIEF.access_key]


def refused_codes(folder: Path) -> list[int]:
    """Returns the codes of the requests of the thief that the audit log says were refused."""
    lines = [line for path in folder.rglob("audit.log") for line in path.read_text().splitlines()]
    return [
        entry["code"]
        for entry in map(json.loads, lines)
        if entry["event"] == "refused" and entry["claims"] == THIEF.access_key
    ]


def test_what_only_a_processor_can_refuse_has_a_line(program: LiveProgram, tmp_path: Path) -> None:
    """Rights to topic and group are there: the message, and the client id, are of another one."""
    code = RequestCode.SEND_MESSAGE
    with WireClient(program.address) as shop, WireClient(program.address) as thief:
        ask(shop, SHOP, code, send_fields("stock", 0), b"first")
        half = ask(
            shop,
            SHOP,
            code,
            send_fields("stock", 0, **half_fields("makers", time.time_ns() // 1_000_000)),
            b"half",
        )
        assert half.code == 0
        ends = end_fields(half.ext_fields or {}, "makers", 12)
        assert ask(thief, THIEF, RequestCode.END_TRANSACTION, ends).code != 0
        assert beat(shop, SHOP, "shop@9", producers=("makers",)).code == 0
        assert beat(thief, THIEF, "shop@9", producers=("makers",)).code != 0
    expected = [RequestCode.END_TRANSACTION.value, RequestCode.HEART_BEAT.value]
    wait_until(lambda: refused_codes(tmp_path) == expected, what="the lines of both refusals")
