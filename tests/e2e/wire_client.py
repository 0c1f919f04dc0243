"""A client that is nothing but a socket: it sends any bytes, and reads commands one by one.

For tests that say things which no real client says. The two functions for a message are what a
stock client does at its simplest: one message, one answer; one pull, the records of the answer.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Self

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.record import Record, decode_record
from ledgermq.protocol.signature import Credentials

ANSWER_S = 10.0


def frame(
    header: bytes,
    body: bytes = b"",
    *,
    serialize_type: int = 0,
    header_length: int | None = None,
    length: int | None = None,
) -> bytes:
    """A frame whose two lengths may lie."""
    told = len(header) if header_length is None else header_length
    word = (serialize_type << 24 | told) & 0xFFFF_FFFF
    rest = word.to_bytes(4, "big") + header + body
    told = len(rest) if length is None else length
    return told.to_bytes(4, "big", signed=True) + rest


def request(
    code: object,
    fields: dict[str, Any] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    flag: int = 0,
) -> bytes:
    """A request with a JSON header that is written as it comes, right or wrong."""
    header = {"code": code, "language": "JAVA", "version": 399, "opaque": opaque, "flag": flag}
    if fields is not None:
        header["extFields"] = fields
    return frame(json.dumps(header).encode(), body)


def send_fields(topic: str, queue_id: int = 0, /, **changes: Any) -> dict[str, Any]:
    """The ext fields of SEND_MESSAGE; a change to None leaves the field out."""
    fields = {
        "producerGroup": "wire-producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not None}


def half_fields(producer_group: str, now_ms: int, **properties: str) -> dict[str, str]:
    """Fields that make a send the first half of a transaction; its age counts from `now_ms`."""
    given = {"TRAN_MSG": "true", "PGROUP": producer_group, **properties}
    text = "\x02".join(f"{name}\x01{value}" for name, value in given.items())
    return {"properties": text, "sysFlag": "4", "bornTimestamp": str(now_ms)}


def end_fields(
    half: Mapping[str, str], producer_group: str, outcome: int, /, **changes: Any
) -> dict[str, Any]:
    """The ext fields of END_TRANSACTION; `half` is the answer to the send of the half message."""
    return {
        "producerGroup": producer_group,
        "tranStateTableOffset": half["queueOffset"],
        "commitLogOffset": str(decode_offset_id(half["msgId"]).physical_offset),
        "commitOrRollback": str(outcome),
        "fromTransactionCheck": "false",
        "msgId": "m",
        **changes,
    }


def pull_fields(topic: str, queue_id: int, offset: int, /, **changes: Any) -> dict[str, Any]:
    """The ext fields of PULL_MESSAGE: the subscription in the header, no waiting."""
    fields = {
        "consumerGroup": "wire-consumers",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not None}


class WireClient:
    """One connection to one address; closed at the end of its `with` block."""

    def __init__(
        self,
        address: str,
        timeout_s: float = ANSWER_S,
        *,
        who: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects, by TLS if `tls` says how; `who` signs what it asks, None: nobody."""
        self._who = who
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        if tls is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._decoder = FrameDecoder()
        self._frames: list[bytes] = []
        self._opaque = 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def detach(self) -> socket.socket:
        """Returns the connection itself, whose owner closes it."""
        return self._socket

    def write(self, data: bytes) -> None:
        """Sends bytes as they are; a connection that is closed meanwhile is no error."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            return

    def end_writing(self) -> None:
        """Tells the peer that nothing more comes."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def read(self) -> RemotingCommand | None:
        """Returns the next command; None when the peer closed.

        Raises:
            TimeoutError: neither came in time.
        """
        while not self._frames:
            try:
                chunk = self._socket.recv(65_536)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self._frames = self._decoder.feed(chunk)
        return decode(self._frames.pop(0))

    def ask(
        self, code: object, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Sends a request and returns its answer.

        Raises:
            ConnectionError: the peer closed instead.
        """
        opaque = self.ask_later(code, fields, body)
        while True:
            answer = self.read()
            if answer is None:
                raise ConnectionError("closed instead of an answer")
            if answer.opaque == opaque:
                return answer

    def ask_later(
        self, code: object, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> int:
        """Sends a request and returns its opaque; who reads gets the answer."""
        self._opaque += 1
        if self._who is not None:
            texts = {name: str(value) for name, value in (fields or {}).items()}
            fields = self._who.signed(texts, body, code if isinstance(code, int) else None)
        self._socket.sendall(request(code, fields, body, opaque=self._opaque))
        return self._opaque

    def send(self, topic: str, queue_id: int, body: bytes, /, **changes: Any) -> RemotingCommand:
        """Sends one message and returns the answer, whatever it says."""
        fields = send_fields(topic, queue_id, **changes)
        return self.ask(RequestCode.SEND_MESSAGE.value, fields, body)

    def pull(self, topic: str, queue_id: int, offset: int) -> list[Record]:
        """Returns the records of one pull; an empty list when there is none."""
        fields = pull_fields(topic, queue_id, offset)
        answer = self.ask(RequestCode.PULL_MESSAGE.value, fields)
        records = []
        start = 0
        while answer.code == 0 and start < len(answer.body):
            record = decode_record(answer.body, start)
            start += record.size_bytes
            records.append(record)
        return records

    def read_queue(self, topic: str, queue_id: int, offset: int = 0) -> list[Record]:
        """Returns all records of a queue from an offset on."""
        records: list[Record] = []
        while found := self.pull(topic, queue_id, offset + len(records)):
            records += found
        return records
