"""Every code from 0 to 65535 at every port of closed programs, asked by people without a right.

    python -m tests.attack.every_code [--codes 65536]

    nobody     without an account, with a certificate of the cluster
    forger     as the admin, with another secret key
    thief      an application with a topic and a group of its own

A name server, a broker with a ledger (its port, the VIP port, the ledger's in plain and, at a
second broker, by TLS), a master and its slave (the port for slaves, too): with accounts, TLS and a
secret. Codes that somebody has a processor for are asked with many headers and bodies, in both
forms of headers, as questions, one way and as answers; all others once. Names, bodies, keys and ids
of the victim are words that stand nowhere else: who is told one of them was told too much. What an
admin sees before and afterwards is compared.

The exit code is 1 when something was told or changed.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from ledgermq.dledger.messages import JsonCode
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.codes import RequestCode, SerializeType
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_site import (
    CANARY,
    GROUP,
    HIDDEN_GROUP,
    HIDDEN_TOPIC,
    THIEF,
    TOPIC,
    VICTIM_MARK,
    Port,
    Site,
)
from tests.fault.closed_ports import LEDGER, NAME_SERVER, SLAVES
from tests.processes import LOOPBACK
from tests.unit.broker.guarded import fields_of_all_headers

FORGER: Final = Credentials(access_key="root-app", secret_key="secret-of-nobody")
# Requests that are on their way at once.
_WINDOW: Final = 32
_ANSWER_S: Final = 20.0
_ONE_WAY, _IS_ANSWER = 2, 1
_KNOWN: Final = sorted({int(code) for kind in (RequestCode, JsonCode, BinaryCode) for code in kind})
# One host may make only so many connections a second.
_sources: Final = cycle(f"127.0.4.{number}" for number in range(1, 250))


class Asker(NamedTuple):
    """Who asks; how requests are signed, by whom."""

    name: str
    who: Credentials | None


class Shape(NamedTuple):
    """What a request says."""

    fields: dict[str, str]
    body: bytes
    flag: int = 0
    serialize_type: SerializeType = SerializeType.JSON


# What the thief may ask, and is answered as if there were nothing but its own.
_OF_THIEF: Final = frozenset(
    (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.QUERY_MESSAGE, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, RequestCode.GET_ALL_PRODUCER_INFO,
        # At name servers: routes, and lists of topics.
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    )
)  # fmt: skip
ASKERS: Final = (Asker("nobody", None), Asker("forger", FORGER), Asker("thief", THIEF))


def shapes() -> list[Shape]:
    """What is asked under each code that is known; the first of them under all."""
    named = fields_of_all_headers(TOPIC, 0)
    grouped = {**named, "consumerGroup": GROUP, "group": GROUP, "srcGroup": GROUP, "a": GROUP,
               "destGroup": "bait-readers", "producerGroup": GROUP}  # fmt: skip
    mine = {**grouped, "topic": "bait", "b": "bait", "originTopic": TOPIC, "statsKey": TOPIC}
    queue = {"topic": TOPIC, "brokerName": "ledger", "queueId": 0}
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 0}
    body = json.dumps(
        {
            "group": GROUP, "consumerGroup": GROUP, "clientId": "c", "clientID": "c",
            "mqSet": [queue], "producerDataSet": [{"groupName": GROUP}],
            "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": [subscription]}],
            "subscriptionData": subscription, "namespace": TOPIC, "topicName": TOPIC,
            "topicConfigTable": {TOPIC: {"topicName": TOPIC, "perm": 0}}, "groupName": GROUP,
            "remoteId": "n0", "localId": "n1", "leaderId": "n1", "term": 1, "beginIndex": 0,
        }
    ).encode()  # fmt: skip
    return [
        Shape(grouped, body),
        Shape({}, b""),
        Shape(named, b""),
        Shape(mine, body),
        Shape(mine, b"forged"),
        Shape(grouped, body, serialize_type=SerializeType.ROCKETMQ),
        Shape(grouped, body, flag=_ONE_WAY),
        Shape(mine, b"", flag=_ONE_WAY),
        Shape(grouped, body, flag=_IS_ANSWER),
    ]


class Finding(NamedTuple):
    """What somebody was told."""

    port: Port
    asker: str
    code: int
    why: str


class Sweep:
    """Asks one port as one asker, many requests at a time."""

    def __init__(self, port: Port, asker: Asker) -> None:
        self._port, self._asker = port, asker
        self._socket: Any = None
        self._decoder = FrameDecoder()
        self.findings: list[Finding] = []
        self.asked = self.answered = 0

    def run(self, codes: Sequence[int]) -> None:
        """Asks all codes."""
        all_shapes = shapes()
        known = set(_KNOWN)
        waiting: list[tuple[int, bytes, bool]] = []
        for code in codes:
            for shape in all_shapes if code in known else all_shapes[:1]:
                if shape.serialize_type is SerializeType.ROCKETMQ and code > 0x7FFF:
                    continue
                waiting.append((code, self._frame(code, shape), shape.flag == 0))
                if len(waiting) >= _WINDOW:
                    self._ask(waiting)
                    waiting = []
        self._ask(waiting)
        self._close()

    def _frame(self, code: int, shape: Shape) -> bytes:
        who, fields = self._asker.who, shape.fields
        if who is not None:
            fields = who.signed(fields, shape.body, code)
        command = RemotingCommand(
            code=code, ext_fields=dict(fields), body=shape.body, opaque=code, flag=shape.flag,
            serialize_type=shape.serialize_type,
        )  # fmt: skip
        return encode(command)

    def _ask(self, requests: list[tuple[int, bytes, bool]]) -> None:
        """Asks several at once; where the connection ends, each of the rest on one of its own."""
        waits = sum(is_question for _, _, is_question in requests)
        self.asked += len(requests)
        got = self._exchange(b"".join(data for _, data, _ in requests), waits)
        if got >= waits:
            return
        for _, data, is_question in requests:
            self._close()
            self._exchange(data, int(is_question))

    def _exchange(self, data: bytes, waits: int) -> int:
        """Sends, and reads so many answers; returns how many came."""
        got = 0
        try:
            self._connect()
            self._socket.sendall(data)
            while got < waits and (chunk := self._socket.recv(262_144)):
                for frame in self._decoder.feed(chunk):
                    self._judge(decode(frame))
                    got += 1
        except RemoteProtocolError:
            # What a port for slaves says to a stranger, if anything, is no frame.
            self._close()
        except TimeoutError:
            raise
        except OSError:
            self._close()
        if got < waits:
            self._close()
        return got

    def _connect(self) -> None:
        if self._socket is not None:
            return
        place = (LOOPBACK, self._port.number)
        plain = socket.create_connection(place, _ANSWER_S, (next(_sources), 0))
        tls = self._port.tls
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=LOOPBACK)
        self._decoder = FrameDecoder()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _judge(self, answer: RemotingCommand) -> None:
        self.answered += 1
        text = json.dumps([answer.remark, answer.ext_fields]).encode() + answer.body
        code = answer.opaque
        if self._asker.who is THIEF and self._port.kind == NAME_SERVER:
            # Whoever has an account reads the routes of all topics there.
            for name in (HIDDEN_TOPIC, HIDDEN_GROUP, TOPIC, GROUP):
                text = text.replace(name.encode(), b"")
        if CANARY in text:
            self._find(code, f"is told {text[:200]!r}")
        elif _is_granted(self._port.kind, answer):
            if self._asker.who is not THIEF:
                self._find(code, f"is answered {answer.code} {text[:200]!r}")
            elif code not in _OF_THIEF or VICTIM_MARK in text:
                self._find(code, f"is done: {text[:200]!r}")

    def _find(self, code: int, why: str) -> None:
        self.findings.append(Finding(self._port, self._asker.name, code, why))


def _is_granted(kind: str, answer: RemotingCommand) -> bool:
    if kind == LEDGER:
        told = json.loads(answer.body or b"{}").get("code", answer.code)
        return answer.code == 0 and told in (0, 200)
    told = (answer.ext_fields or {}).keys() - {"MSG_REGION", "TRACE_ON"}
    return answer.code == 0 or bool(answer.body) or bool(told)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name)!r} is now {after.get(name)!r}"


def main() -> int:
    """Asks everything; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--codes", type=int, default=65_536, help="from 0 on; all that are known")
    codes = sorted({*range(parser.parse_args().codes), *_KNOWN, *range(-3, 0), 2**31 - 1, -(2**31)})
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="every-code-") as folder, ExitStack() as stack:
        site = Site(Path(folder), stack)
        for asker in ASKERS:
            before = site.everything()
            for port in site.ports():
                site.beat()
                begun_s = time.monotonic()
                sweep = Sweep(port, asker)
                # Those of members end with the first frame of a stranger.
                is_slow = port.kind in (LEDGER, SLAVES)
                sweep.run(sorted({*codes[::16], *_KNOWN}) if is_slow else codes)
                _say(
                    f"{asker.name}: {port.kind} of {port.program}: {sweep.asked} requests,"
                    f" {sweep.answered} answers, {len(sweep.findings)} findings,"
                    f" {time.monotonic() - begun_s:.0f} s"
                )  # fmt: skip
                failures += [
                    f"{one.port.kind} of {one.port.program}: {one.asker}, {one.code}: {one.why}"
                    for one in dict.fromkeys(sweep.findings)
                ]
            failures += [
                f"{asker.name} changed {one}" for one in _changes(before, site.everything())
            ]
    for failure in failures:
        _say(failure)
    _say(f"{len(failures)} things were told or changed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
