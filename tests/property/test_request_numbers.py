"""A number in a request is the same to the guard and to the processor, for every code of a broker.

The whole table of processors stands here behind its guard; what either of them decodes of a request
is noted. A spelling that only one of the two would read as that number is refused by both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from random import Random
from typing import Any

import pytest

from ledgermq.broker.dispatch import Processor
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.errors import ProtocolError, RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import (
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from ledgermq.protocol.headers.header import numbers_of
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.signature import Credentials
from tests.kernel_forms import forms_of
from tests.unit.broker.guarded import Log, fields_of_all_headers, guarded_table, record_of
from tests.unit.broker.parts import HOST, ListConnection

USER = Credentials(access_key="some-account", secret_key="some-secret")
RULES = {
    "accounts": [
        {
            "accessKey": USER.access_key, "secretKey": USER.secret_key, "admin": True,
            "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB",
            "topicPerms": ["orders=PUB|SUB"],
        }
    ]
}  # fmt: skip
# Where a message stands, and a half message.
PLACE, HALF_PLACE = 4711, 5822
PROPERTIES = b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02PGROUP\x01p"
# Spellings of a number that are not its own; each may be one to somebody.
SPELLINGS: tuple[Callable[[int], str], ...] = (
    lambda n: f"{n}.0", lambda n: f"{n}e0", lambda n: f"{n}E+0", lambda n: f"0{n}",
    lambda n: f"{n:020d}", lambda n: f"+{n}", lambda n: f" {n}", lambda n: f"{n} ",
    lambda n: f"{n}\n", lambda n: f"{n}\0", lambda n: f"-0{n}", lambda n: hex(n),
    lambda n: f"{n}L", lambda n: "".join(chr(0x660 + int(digit)) for digit in str(n)),
    lambda n: "".join(chr(0xFF10 + int(digit)) for digit in str(n)), lambda n: f"{n}_0",
    lambda n: f"{n},0", lambda n: "", lambda n: "-0", lambda n: "null", lambda n: "true",
    lambda n: str(n + 2**64), lambda n: str(n - 2**64), lambda n: "9" * 5000,
)  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Processor]:
    """All processors of a broker that leads, behind their guard."""
    log = Log(
        {
            PLACE: record_of("orders", b""),
            HALF_PLACE: record_of("RMQ_SYS_TRANS_HALF_TOPIC", PROPERTIES),
        }
    )
    return guarded_table(tmp_path_factory.mktemp("rules"), RULES, log).table


@lru_cache
def all_fields() -> dict[str, str]:
    """One value that can be read for every field of every header."""
    message_id = encode_offset_id(HOST[0], HOST[1], PLACE)
    return fields_of_all_headers("orders", 3) | {
        "offset": str(PLACE), "commitLogOffset": str(HALF_PLACE), "msgId": message_id,
        "commitOrRollback": "8", "producerGroup": "p", "a": "p",
    }  # fmt: skip


Decoded = list[tuple[type[Header], Header]]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoded]:
    """Headers in the order in which anybody decodes them."""
    seen: Decoded = []
    decode_fields = Header.from_ext_fields.__func__  # type: ignore[attr-defined]

    def noted(header_class: type[Header], ext_fields: Mapping[str, str]) -> Header:
        header: Header = decode_fields(header_class, ext_fields)
        seen.append((header_class, header))
        return header

    monkeypatch.setattr(Header, "from_ext_fields", classmethod(noted))
    yield seen


def ask(table: dict[int, Processor], code: int, changes: Mapping[str, str]) -> str:
    """Sends a request through its frame; returns what the broker says against its form."""
    fields = all_fields() | changes
    # What a client encodes is what a broker gets, in both forms of the header.
    forms = []
    for serialize_type in (0, 1):
        command = RemotingCommand(
            code=code, ext_fields=USER.signed(fields, b""), serialize_type=serialize_type
        )
        [frame] = FrameDecoder().feed(encode(command))
        connection: Any = ListConnection()
        connection.peer_host = "10.0.0.9"
        try:
            table[code](connection, decode(frame))
        except RemoteProtocolError as error:
            forms.append(str(error))
        except ProtocolError:
            raise
        except Exception:
            # Beyond the header nothing is at stake here, and most of the store is not there.
            forms.append("")
        else:
            forms.append("")
    assert forms[0] == forms[1]
    return forms[0]


# Codes whose requests say all in their body, or nothing.
WITHOUT_FIELDS = {
    RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.CHECK_CLIENT_CONFIG, RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
}  # fmt: skip


def test_guard_judges_the_header_that_the_processor_reads(
    table: dict[int, Processor], decoded: Decoded
) -> None:
    for code in table:
        decoded.clear()
        remark = ask(table, code, {})
        assert remark == "" or "JSON body" in remark, RequestCode(code).name
        assert bool(decoded) == (code not in WITHOUT_FIELDS), RequestCode(code).name
        # Once for guard and processor, in each of the two forms: they cannot come to two values.
        assert len(decoded) <= 2, RequestCode(code).name
        assert all(header == decoded[0][1] for _, header in decoded)


def test_odd_spelling_of_a_number_is_refused_for_every_code(
    table: dict[int, Processor], decoded: Decoded
) -> None:
    """Whoever read such a field as another number than the guard, read another message."""
    count = 0
    for code in table:
        decoded.clear()
        ask(table, code, {})
        header_class = decoded[0][0] if decoded else None
        for key, _ in numbers_of(header_class) if header_class is not None else ():
            plain = int(all_fields()[key])
            for spelling in SPELLINGS:
                text = spelling(plain)
                decoded.clear()
                remark = ask(table, code, {key: text})
                assert remark.startswith(f"{key} is ") and "allowed" in remark, (code, key, text)
                # Neither of the two came to a number.
                assert decoded == [], (code, key, text)
                count += 1
    assert count > 1000


def test_every_plain_number_is_the_same_to_both(
    table: dict[int, Processor], decoded: Decoded
) -> None:
    rng = Random(19)
    for code in table:
        decoded.clear()
        ask(table, code, {})
        header_class = decoded[0][0] if decoded else None
        for key, name in numbers_of(header_class) if header_class is not None else ():
            for bits in (0, 7, 31):
                number = rng.randrange(-(1 << bits), 1 << bits)
                decoded.clear()
                assert ask(table, code, {key: str(number)}) == "", (code, key, number)
                assert decoded, (code, key, number)
                assert {getattr(header, name) for _, header in decoded} == {number}


QUICK_SEND = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "1", "g": "1700000000000",
    "h": "5", "i": "TAGS\x01t\x02", "j": "2", "k": "false", "l": "16", "m": "false",
}  # fmt: skip
QUICK_PULL = {
    "consumerGroup": "g", "topic": "orders", "queueId": "1", "queueOffset": "70",
    "maxMsgNums": "32", "sysFlag": "2", "commitOffset": "6", "suspendTimeoutMillis": "15000",
    "subVersion": "9", "maxMsgBytes": "4", "requestSource": "8",
}  # fmt: skip


@pytest.mark.parametrize("form", forms_of("ledgermq.protocol.quick_frames"))
@pytest.mark.parametrize(
    ("code", "fields", "header_class"),
    [(310, QUICK_SEND, SendMessageRequestHeaderV2), (11, QUICK_PULL, PullMessageRequestHeader)],
)
def test_quick_road_takes_no_number_that_the_long_road_refuses(
    form: Any, code: int, fields: dict[str, str], header_class: type[Header]
) -> None:
    def is_quick(changes: Mapping[str, str]) -> bool:
        [frame] = FrameDecoder().feed(
            encode(RemotingCommand(code=code, ext_fields=fields | changes))
        )
        pull = form.read_quick_pull(frame)
        sends = form.read_quick_sends([frame])
        return (pull is not None) if code == 11 else bool(sends)

    assert is_quick({})
    for key, name in numbers_of(header_class):
        for spelling in SPELLINGS:
            text = spelling(int(fields[key]))
            with pytest.raises(RemoteProtocolError):
                header_class.from_ext_fields(fields | {key: text})
            assert not is_quick({key: text}), (key, text)
        for number in (0, 1, -1, 10, 2**31 - 1):
            header = header_class.from_ext_fields(fields | {key: str(number)})
            assert getattr(header, name) == number
            assert is_quick({key: str(number)}), (key, number)
