"""Valid frames for each port, made by our own encoders, kept as text: `corpus/<port>.txt`.

A line is a name and the frame in hexadecimal digits. `python -m tests.attack.frames` writes the
files anew; what once broke something is added to `corpus/broken.txt` by hand, with its port before
the name, and is played before anything drawn.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from ledgermq.broker.ha.frames import encode_report
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol import headers
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.headers import Header

PORTS: Final = ("broker", "ledger", "ha", "namesrv")
_FOLDER: Final = Path(__file__).parent / "corpus"
_RECORDED: Final = Path(__file__).parents[1] / "interop" / "frames" / "dledger-0.2.3"
# Codes from here on are for name servers alone.
_NAME_SERVER_CODES: Final = frozenset(range(100, 109)) | {205, 206, 304, 311, 312, 313, 314, 318}

_TEXTS: Final = {
    "topic": "Fuzzed",
    "key": "k",
    "properties": "KEYS\x01k\x02TAGS\x01t\x02",
    "subscription": "*",
    "msg_id": "7F00000100002A9F0000000000000030",
    "perm": "6",
    "topic_filter_type": "SINGLE_TAG",
}
_BODIES: Final[dict[str, object]] = {
    "HEART_BEAT": {
        "clientID": "c", "producerDataSet": [{"groupName": "pg"}],
        "consumerDataSet": [{
            "groupName": "cg", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{
                "topic": "Fuzzed", "subString": "a || b", "subVersion": 1, "tagsSet": ["a", "b"],
                "codeSet": [97, 98], "expressionType": "TAG", "classFilterMode": False,
            }],
        }],
    },
    "CHECK_CLIENT_CONFIG": {
        "clientId": "c", "group": "cg",
        "subscriptionData": {"topic": "Fuzzed", "subString": "a > 1", "expressionType": "SQL92"},
    },
    "LOCK_BATCH_MQ": {
        "consumerGroup": "cg", "clientId": "c",
        "mqSet": [{"topic": "Fuzzed", "brokerName": "b", "queueId": 0}],
    },
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": {"groupName": "cg", "retryQueueNums": 1},
    "UPDATE_BROKER_CONFIG": "brokerPermission=6\n",
    "QUERY_CORRECTION_OFFSET": {},
    "REGISTER_BROKER": {
        "topicConfigSerializeWrapper": {
            "dataVersion": {"timestamp": 1, "counter": 1},
            "topicConfigTable": {
                "Fuzzed": {
                    "topicName": "Fuzzed", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
                },
            },
        },
        "filterServerList": [],
    },
}  # fmt: skip


def _header_of(code: RequestCode) -> dict[str, str]:
    """Fields that the header of a code may have, each with a value that is plain."""
    name = "".join(part.capitalize() for part in code.name.split("_")) + "RequestHeader"
    kind = getattr(headers, name, None)
    if code.name.startswith(("SEND_MESSAGE", "SEND_BATCH")):
        kind = (
            headers.SendMessageRequestHeader if code == 10 else headers.SendMessageRequestHeaderV2
        )
    if not (isinstance(kind, type) and issubclass(kind, Header)):
        return {"topic": "Fuzzed", "group": "cg", "consumerGroup": "cg"}
    fields = {}
    for field in msgspec.structs.fields(kind):
        text = str(field.type)
        value = _TEXTS.get(field.name)
        if value is None:
            value = "true" if "bool" in text else "0" if "int" in text else "cg"
        fields[field.encode_name] = value
    return fields


def _requests() -> dict[str, list[tuple[str, bytes]]]:
    found: dict[str, list[tuple[str, bytes]]] = {"broker": [], "namesrv": []}
    for code in sorted(RequestCode, key=int):
        body = _BODIES.get(code.name, "m" if code.name.startswith("SEND") else "")
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        port = "namesrv" if int(code) in _NAME_SERVER_CODES else "broker"
        command = RemotingCommand(
            code=int(code), opaque=7, ext_fields=_header_of(code), body=data, version=399
        )
        found[port].append((code.name.lower(), encode(command)))
        if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE):
            binary = RemotingCommand(
                code=int(code), opaque=7, ext_fields=_header_of(code), body=data, version=399,
                serialize_type=1,
            )  # fmt: skip
            found[port].append((f"{code.name.lower()}-binary", encode(binary)))
    return found


def _ledger() -> list[tuple[str, bytes]]:
    hello = {
        "version": WIRE_VERSION, "group": "broker-a", "sender": "n1", "target": "n0",
        "segment_bytes": 16_777_216, "members": ["n0", "n1", "n2"],
    }  # fmt: skip
    found = []
    for code in BinaryCode:
        body = json.dumps(hello).encode() if code is BinaryCode.HELLO else bytes(60)
        command = RemotingCommand(code=code.value, opaque=7, body=body)
        found.append((code.name.lower(), encode(command)))
    for path in sorted(_RECORDED.glob("*-request-1.bin")):
        found.append((path.stem, path.read_bytes()))
    return found


def _ha() -> list[tuple[str, bytes]]:
    return [(f"report-{offset}", encode_report(offset)) for offset in (0, 1, 4096, 2**62)]


def write() -> None:
    """Writes the files of all ports."""
    _FOLDER.mkdir(exist_ok=True)
    frames: dict[str, list[tuple[str, bytes]]] = {**_requests(), "ledger": _ledger(), "ha": _ha()}
    for port, named in frames.items():
        lines = [f"{name} {data.hex()}\n" for name, data in named if len(data) < 4096]
        (_FOLDER / f"{port}.txt").write_text("".join(lines))


def read(port: str) -> dict[str, bytes]:
    """Returns the frames of a port by their names."""
    return dict(_lines((_FOLDER / f"{port}.txt").read_text()))


def broken(port: str) -> dict[str, bytes]:
    """Returns what once broke something behind a port."""
    path = _FOLDER / "broken.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    own = [re.sub(rf"^{port} ", "", line) for line in lines if line.startswith(f"{port} ")]
    return dict(_lines("\n".join(own)))


def _lines(text: str) -> list[tuple[str, bytes]]:
    pairs: list[Any] = [line.split() for line in text.splitlines() if line]
    return [(name, bytes.fromhex(digits)) for name, digits in pairs]


if __name__ == "__main__":
    write()
