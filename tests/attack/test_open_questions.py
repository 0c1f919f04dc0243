"""A client that reads all that it is asked, and never answers: what the broker keeps is bounded."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.properties import format_properties
from tests.attack.closed_broker import THIEF, beat
from tests.e2e.wire_client import WireClient, request, send_fields
from tests.processes import LiveProgram

_SILENT = "silent@1"
_KIB = 1 << 10
# All that are sent together are more than what is kept for one client.
_BYTES = 24 << 20


def reply(size: int) -> tuple[RequestCode, dict[str, Any], bytes]:
    properties = format_properties({"CORRELATION_ID": "c", "REPLY_TO_CLIENT": _SILENT})
    fields = send_fields("DefaultCluster_REPLY_TOPIC", 0, properties=properties)
    return RequestCode.SEND_REPLY_MESSAGE, fields, bytes(size)


def running_info(size: int) -> tuple[RequestCode, dict[str, Any], bytes]:
    fields = {"consumerGroup": "shared-readers", "clientId": _SILENT, "junk": "x" * size}
    return RequestCode.GET_CONSUMER_RUNNING_INFO, fields, b""


@contextlib.contextmanager
def read_by_nobody_else(client: WireClient) -> Iterator[None]:
    """Has all that comes read, and thrown away, while the block lasts."""
    connection = client.detach()

    def read() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(1 << 20):
                pass

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        connection.shutdown(socket.SHUT_RDWR)
        thread.join()
        connection.close()


@pytest.mark.parametrize(("make", "size"), [(reply, 1024 * _KIB), (running_info, 50 * _KIB)])
def test_client_that_answers_nothing_is_asked_no_more(
    program: LiveProgram, make: Any, size: int
) -> None:
    code, fields, body = make(size)
    texts = {name: str(value) for name, value in fields.items()}
    question = request(code.value, THIEF.signed(texts, body, code.value), body)
    silent = WireClient(program.address)
    groups = {"producers": ("askers",), "consumers": ("shared-readers",)}
    assert beat(silent, THIEF, _SILENT, **groups).code == 0
    with read_by_nobody_else(silent), WireClient(program.address) as asking:
        assert beat(asking, THIEF, "asking@1", producers=("repliers",)).code == 0
        for _ in range(_BYTES // size):
            asking.write(question)
        # The others wait for the silent one, for ten seconds.
        refused = asking.read()
        assert refused is not None and "it answers too slowly" in str(refused.remark)
