"""Who a broker registers at, and who passes on what it signed.

A name server that brokers were told by mistake, or that was taken over, has their signatures. With
the strong form it can register nobody with them, here or elsewhere.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from tests.attack.test_name_server import ROOT, SHOP, Wire, start
from tests.processes import LOOPBACK, broker
from tests.waiting import wait_until


class Eavesdropper:
    """A name server that keeps what brokers tell it, and answers nothing but that it does so."""

    def __init__(self) -> None:
        self._socket = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._socket.getsockname()[1]}"
        self.registrations: list[RemotingCommand] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10.0)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            decoder = FrameDecoder()
            with connection:
                while data := connection.recv(1 << 16):
                    for frame in decoder.feed(data):
                        command = decode(frame)
                        if command.code == RequestCode.REGISTER_BROKER:
                            self.registrations.append(command)
                        answer = command.response(ResponseCode.SUCCESS)
                        connection.sendall(encode(answer))


@pytest.fixture
def eavesdropper() -> Iterator[Eavesdropper]:
    listening = Eavesdropper()
    yield listening
    listening.close()


def passed_on(wire: Wire, told: RemotingCommand, **changes: str) -> RemotingCommand:
    fields = {**(told.ext_fields or {}), **changes}
    return wire.ask(told.code, fields, told.body)


@pytest.mark.parametrize("form", ["stock", "strong"])
def test_a_registration_that_another_one_was_given(
    tmp_path: Path, eavesdropper: Eavesdropper, form: str
) -> None:
    secret = tmp_path / "broker.secret"
    secret.touch(0o600)
    secret.write_text(SHOP.secret_key)
    named = "aclSignedAddresses=names.example:9876"
    with (
        start(tmp_path, named, is_closed=True) as program,
        broker(
            tmp_path,
            f"namesrvAccessKey={SHOP.access_key}", f"namesrvSecretKeyFile={secret}",
            f"namesrvSignature={form}",
            namesrv=f"{program.address};{eavesdropper.address}", name="shop-b",
        ),
        Wire(program.address) as wire,
    ):  # fmt: skip
        (told, *_) = wait_until(lambda: eavesdropper.registrations, what="a registration")
        wait_until(lambda: wire.route("shop-b"), what="the broker at the true name server")
        answer = passed_on(wire, told)
        if form == "stock":
            assert answer.code == ResponseCode.SUCCESS
            return
        assert answer.code == ResponseCode.NO_PERMISSION
        assert f"signed for '{eavesdropper.address}', which is another one" in str(answer.remark)
        changed = passed_on(wire, told, SignedFor=program.address)
        assert changed.code == ResponseCode.NO_PERMISSION


def test_a_name_server_that_asks_for_the_strong_form_registers_nobody_by_the_other(
    tmp_path: Path,
) -> None:
    strong = replace(SHOP, form="strong")
    code = RequestCode.REGISTER_BROKER.value
    with (
        start(tmp_path, "aclSignature=strong", is_closed=True) as program,
        Wire(program.address, SHOP) as stock,
        Wire(program.address) as wire,
    ):
        refused = stock.register("shop-a", "10.0.0.1:10911", "orders")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "allowed is strong (key aclSignature)" in str(refused.remark)
        told = {
            "brokerName": "shop-a", "brokerAddr": "10.0.0.1:10911", "brokerId": "0",
            "clusterName": "DefaultCluster", "haServerAddr": "10.0.0.1:10912",
        }  # fmt: skip
        signed = strong.signed(told, b"", code, program.address)
        assert wire.ask(code, signed).code == ResponseCode.SUCCESS
        again = wire.ask(code, signed)
        assert again.code == ResponseCode.NO_PERMISSION and "it came before" in str(again.remark)
        put = {"namespace": "NS", "key": "k", "value": "v"}
        assert wire.ask(100, ROOT.signed(put, b"")).code == ResponseCode.NO_PERMISSION
