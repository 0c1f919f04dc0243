"""Typed headers: Java's rules for text to value and back, and the two functions of the hot path."""

import inspect

import pytest

from ledgermq.protocol import headers
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetRouteInfoRequestHeader,
    Header,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    RegisterBrokerRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
    decode_pull_header,
    decode_send_header,
    encode_send_response,
)

ALL_HEADERS = [
    header_class
    for _, header_class in inspect.getmembers(headers, inspect.isclass)
    if issubclass(header_class, Header) and header_class is not Header
]
LONG_SEND = {
    "producerGroup": "pg",
    "topic": "TopicA",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "-1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "true",
    "maxReconsumeTimes": "16",
}
SHORT_KEYS = dict(zip(LONG_SEND, "abcdefghijkml", strict=True))
SHORT_SEND = {SHORT_KEYS[key]: text for key, text in LONG_SEND.items()}


def test_key_on_the_wire_is_camel_case_unless_given() -> None:
    assert UnregisterClientRequestHeader(client_id="c").to_ext_fields() == {"clientID": "c"}
    assert QueryMessageRequestHeader.__struct_encode_fields__[-1] == "_UNIQUE_KEY_QUERY"
    assert "bodyCrc32" in RegisterBrokerRequestHeader.__struct_encode_fields__


def test_values_become_java_s_text() -> None:
    header = RegisterBrokerRequestHeader(
        broker_name="b",
        broker_addr="a",
        cluster_name="c",
        ha_server_addr="h",
        broker_id=0,
        compressed=True,
        body_crc32=-5,
    )
    assert header.to_ext_fields() == {
        "brokerName": "b",
        "brokerAddr": "a",
        "clusterName": "c",
        "haServerAddr": "h",
        "brokerId": "0",
        "compressed": "true",
        "bodyCrc32": "-5",
    }
    assert RegisterBrokerRequestHeader.from_ext_fields(header.to_ext_fields()) == header


@pytest.mark.parametrize("number", [0, 7, -7, 10, 2**31 - 1, -(2**31)])
def test_number_is_read_as_every_client_writes_it(number: int) -> None:
    fields = {"topic": "t", "queueId": str(number)}
    assert GetMaxOffsetRequestHeader.from_ext_fields(fields).queue_id == number


@pytest.mark.parametrize(
    "text",
    # What Java, Python or JSON would read as a number, and those who guard must not have to guess.
    ["+7", "007", "-07", "-0", "00", "7.0", "7e0", "7E0", "0x7", "1_0", "1,000", "7L", "null"]
    + ["", " 7", "7 ", "7\n", "7\0", "x", "--7", "+", "-", "- 7", "1e400", "NaN", "inf", "true"]
    + ["\u0663", "\uff17", "\u00b2", "\u0967", "\U0001d7d5", "\u22127"],
)  # fmt: skip
def test_other_spelling_of_a_number_is_refused_by_name(text: str) -> None:
    for header_class in (GetMaxOffsetRequestHeader, SendMessageRequestHeader):
        fields = LONG_SEND | {"topic": "t", "queueId": text}
        with pytest.raises(RemoteProtocolError) as raised:
            header_class.from_ext_fields(fields)
        assert raised.value.field == "queueId" and raised.value.value == text
        assert "a whole number of -2147483648 to 2147483647 in plain decimal" in str(raised.value)


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "9" * 19, "9" * 5000])
def test_number_beyond_32_bits_is_refused_by_name(text: str) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        GetMaxOffsetRequestHeader.from_ext_fields({"topic": "t", "queueId": text})
    assert raised.value.field == "queueId" and "-2147483648 to 2147483647" in str(raised.value)


@pytest.mark.parametrize("text", ["7", "-7", "0", "07", "7.0"])
def test_optional_number_has_the_same_grammar(text: str) -> None:
    fields = LONG_SEND | {"maxReconsumeTimes": text}
    if text in ("07", "7.0"):
        with pytest.raises(RemoteProtocolError, match="^maxReconsumeTimes is"):
            SendMessageRequestHeader.from_ext_fields(fields)
    else:
        header = SendMessageRequestHeader.from_ext_fields(fields)
        assert header.max_reconsume_times == int(text)


@pytest.mark.parametrize("offset", [-(2**63), 2**63 - 1])
def test_64_bit_numbers_have_their_whole_range(offset: int) -> None:
    header = GetMaxOffsetResponseHeader(offset=offset)
    assert GetMaxOffsetResponseHeader.from_ext_fields(header.to_ext_fields()) == header


@pytest.mark.parametrize("offset", [-(2**63) - 1, 2**63])
def test_number_beyond_64_bits_is_refused_both_ways(offset: int) -> None:
    with pytest.raises(RemoteProtocolError):
        GetMaxOffsetResponseHeader.from_ext_fields({"offset": str(offset)})
    with pytest.raises(LocalProtocolError):
        GetMaxOffsetResponseHeader(offset=offset).to_ext_fields()


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("false", False), ("yes", False), ("", False)]
    # The C++ client sends its booleans as numbers.
    + [("1", True), ("0", False)],
)
def test_only_true_and_one_are_true(text: str, value: bool) -> None:
    fields = {"topic": "t", "acceptStandardJsonOnly": text}
    assert GetRouteInfoRequestHeader.from_ext_fields(fields).accept_standard_json_only is value


def test_missing_required_field_is_named() -> None:
    command = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "pg"})
    with pytest.raises(RemoteProtocolError, match="^b is missing$"):
        command.header(SendMessageRequestHeaderV2)
    with pytest.raises(RemoteProtocolError, match="^producerGroup is missing$"):
        RemotingCommand(code=RequestCode.SEND_MESSAGE).header(SendMessageRequestHeader)


def test_fields_of_other_names_are_ignored() -> None:
    fields = {"topic": "t", "queueId": "1", "bname": "b", "Signature": "s"}
    assert GetMaxOffsetRequestHeader.from_ext_fields(fields) == GetMaxOffsetRequestHeader(
        topic="t", queue_id=1
    )


@pytest.mark.parametrize("key", ["removeOffset", "cleanOffset"])
def test_renamed_field_is_read_under_both_names(key: str) -> None:
    header = DeleteSubscriptionGroupRequestHeader.from_ext_fields({"groupName": "g", key: "true"})
    assert header.remove_offset
    assert header.to_ext_fields() == {"groupName": "g", "removeOffset": "true"}


@pytest.mark.parametrize("header_class", ALL_HEADERS, ids=lambda one: one.__name__)
def test_header_without_fields_is_read_or_refused(header_class: type[Header]) -> None:
    try:
        header = header_class.from_ext_fields({})
    except RemoteProtocolError as error:
        assert error.value is None
    else:
        assert header_class.from_ext_fields(header.to_ext_fields()) == header


@pytest.mark.parametrize(
    ("code", "fields"), [(10, LONG_SEND), (310, SHORT_SEND), (320, SHORT_SEND), (324, LONG_SEND)]
)
def test_send_header_reads_alike_in_both_forms(code: int, fields: dict[str, str]) -> None:
    header = decode_send_header(RemotingCommand(code=code, ext_fields=fields))
    assert (header.producer_group, header.topic, header.default_topic) == ("pg", "TopicA", "TBW102")
    assert (header.default_topic_queue_nums, header.queue_id, header.sys_flag) == (4, -1, 0)
    assert (header.born_timestamp, header.flag) == (1_700_000_000_000, 0)
    assert (header.properties, header.reconsume_times) == ("KEYS\x01k\x02", 0)
    assert (header.unit_mode, header.batch, header.max_reconsume_times) == (False, True, 16)
    assert header.to_ext_fields() == fields


def test_optional_fields_of_a_send_may_be_absent() -> None:
    fields = {key: SHORT_SEND[key] for key in "abcdefgh"}
    header = decode_send_header(RemotingCommand(code=310, ext_fields=fields))
    assert (header.properties, header.batch, header.reconsume_times) == (None, None, None)


def test_text_of_a_word_stays_text() -> None:
    header = decode_send_header(RemotingCommand(code=310, ext_fields={**SHORT_SEND, "i": "null"}))
    assert header.properties == "null"


@pytest.mark.parametrize("code", [10, 310])
def test_send_without_fields_is_refused(code: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_send_header(RemotingCommand(code=code))


def test_pull_header_is_read() -> None:
    fields = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "1",
        "queueOffset": "5",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1",
    }
    header = decode_pull_header(RemotingCommand(code=11, ext_fields=fields))
    assert isinstance(header, PullMessageRequestHeader)
    assert (header.queue_offset, header.suspend_timeout_millis) == (5, 15_000)
    assert (header.subscription, header.expression_type) == (None, None)


SEND_ANSWER = (
    b'{"code":0,"extFields":{"queueId":"3","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"0A00000100002A9F0000000000000000","queueOffset":"7"},"flag":1,"language":"JAVA",'
    b'"opaque":9,"serializeTypeCurrentRPC":"JSON","version":399}'
)


def test_send_answer_is_java_s_byte_for_byte() -> None:
    msg_id = "0A00000100002A9F0000000000000000"
    frame = encode_send_response(9, 0, msg_id, 3, 7, "DefaultRegion")
    assert frame[8:] == SEND_ANSWER
    assert frame[:8] == bytes.fromhex("000000eb 000000e7")


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("region", ["DefaultRegion", 'a"b\\c%d%', "région", ""])
@pytest.mark.parametrize("opaque", [0, -1, 2**31 - 1, -(2**31)])
def test_send_answer_has_its_five_fields(serialize_type: int, region: str, opaque: int) -> None:
    msg_ids = ",".join(["0A00000100002A9F0000000000000000"] * 3)
    frame = encode_send_response(opaque, serialize_type, msg_ids, 3, 2**63 - 1, region)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    command = decode(frame[4:])
    assert (command.code, command.opaque, command.flag) == (0, opaque, 1)
    assert (command.serialize_type, command.version, command.body) == (serialize_type, 399, b"")
    assert command.ext_fields == {
        "msgId": msg_ids,
        "queueId": "3",
        "queueOffset": str(2**63 - 1),
        "MSG_REGION": region,
        "TRACE_ON": "true",
    }
    assert command.header(SendMessageResponseHeader).msg_id == msg_ids
