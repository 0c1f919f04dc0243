"""Whoever reads the wire repeats and changes what others signed: with the strong form in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ledgermq.cli.remote import Remote
from ledgermq.cli.security import Security
from ledgermq.protocol.codes import RequestCode
from tests.attack.closed_broker import ROOT, SHOP, ask, closed_broker
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import LiveProgram

SEND, DELETE = RequestCode.SEND_MESSAGE.value, RequestCode.DELETE_TOPIC_IN_BROKER.value
STRONG_ROOT = replace(ROOT, form="strong")
STRONG_SHOP = replace(SHOP, form="strong")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    folder = tmp_path_factory.mktemp("broker")
    with closed_broker(folder, "aclSignature=strong") as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def test_request_that_was_read_off_the_wire_is_no_other_one(client: WireClient) -> None:
    """A query for a topic, signed by an admin, once removed the topic under another code."""
    stats = RequestCode.GET_TOPIC_STATS_INFO.value
    assert ask(client, STRONG_SHOP, RequestCode.SEND_MESSAGE, send_fields("orders", 0)).code == 0
    seen = STRONG_ROOT.signed({"topic": "orders"}, b"", stats)
    changed = client.ask(DELETE, seen)
    assert "Check signature failed" in str(changed.remark)
    assert client.ask(stats, seen).code == 0
    again = client.ask(stats, seen)
    assert "it came before" in str(again.remark)
    assert ask(client, STRONG_SHOP, RequestCode.SEND_MESSAGE, send_fields("orders", 0)).code == 0


def test_message_is_not_sent_twice_by_who_saw_it(client: WireClient) -> None:
    fields = STRONG_SHOP.signed(send_fields("orders", 0), b"paid", SEND)
    assert client.ask(SEND, fields, b"paid").code == 0
    assert "it came before" in str(client.ask(SEND, fields, b"paid").remark)
    assert "Check signature failed" in str(client.ask(SEND, fields, b"Paid").remark)


def test_request_that_was_signed_for_another_broker_is_not_taken_from_it(
    program: LiveProgram, client: WireClient
) -> None:
    """A broker that an admin's tool looks at passes what was signed on to a true one."""
    fields, port = send_fields("orders", 0), program.address.rpartition(":")[2]
    for ends in ("10.6.6.6:10911", f"evil.example:{port},10.6.6.6:{port}", f"127.0.0.1:{port}0"):
        passed_on = STRONG_SHOP.signed(fields, b"m", SEND, ends)
        refused = client.ask(SEND, passed_on, b"m")
        assert "it was signed for" in str(refused.remark), refused.remark
        assert "key aclSignedAddresses" in str(refused.remark)
        changed = client.ask(SEND, {**passed_on, "SignedFor": program.address}, b"m")
        assert "Check signature failed" in str(changed.remark)
        passed_on.pop("SignedFor")
        assert "Check signature failed" in str(client.ask(SEND, passed_on, b"m").remark)
    for ends in (program.address, f"broker.example:{port},127.0.0.1:{port}", ""):
        assert client.ask(SEND, STRONG_SHOP.signed(fields, b"m", SEND, ends), b"m").code == 0


def test_our_clients_and_tools_say_for_whom_they_sign(program: LiveProgram) -> None:
    """Also where they know the broker by a name of its machine."""
    port = program.address.rpartition(":")[2]
    security = Security(credentials=STRONG_ROOT)
    with Remote("127.0.0.1:1", security=security) as remote:
        for host in ("127.0.0.1", "localhost"):
            assert remote.ask(f"{host}:{port}", RequestCode.GET_BROKER_CONFIG).code == 0


def test_stock_form_is_refused_with_the_key(client: WireClient) -> None:
    """So nobody between a client and its broker talks the two out of the strong one."""
    refused = client.ask(SEND, SHOP.signed(send_fields("orders", 0), b"m"), b"m")
    assert "allowed is strong (key aclSignature)" in str(refused.remark)


def test_client_that_wants_the_strong_form_works(program: LiveProgram) -> None:
    """Its sends and all its other requests, many in flight."""
    with WireClient(program.address) as wire:
        for number in range(200):
            fields = STRONG_SHOP.signed(send_fields("orders", 0), b"%d" % number, SEND)
            wire.ask_later(SEND, fields, b"%d" % number)
        answers = [wire.read() for _ in range(200)]
    assert all(answer is not None and answer.code == 0 for answer in answers)


def test_both_forms_are_taken_where_the_key_says_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with closed_broker(tmp_path_factory.mktemp("any")) as running:
        with WireClient(running.wait_until_serving().address) as client:
            for who in (SHOP, STRONG_SHOP):
                sent = ask(client, who, RequestCode.SEND_MESSAGE, send_fields("orders", 0))
                assert sent.code == 0
