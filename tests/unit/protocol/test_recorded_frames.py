"""Frames recorded between real programs: each must come out of our codec as it went in."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledgermq.protocol import bodies, headers, heartbeat, lenient_json, route
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.json_body import JsonBody

FRAMES = Path(__file__).parents[2] / "interop" / "frames"

# Programs whose writer is Java's: our writer puts the same members in the same order.
JAVA_WRITERS = ("java-", "dledger-")

REQUEST_HEADERS: dict[int, type[headers.Header]] = {
    10: headers.SendMessageRequestHeader,
    11: headers.PullMessageRequestHeader,
    12: headers.QueryMessageRequestHeader,
    14: headers.QueryConsumerOffsetRequestHeader,
    15: headers.UpdateConsumerOffsetRequestHeader,
    17: headers.CreateTopicRequestHeader,
    29: headers.SearchOffsetRequestHeader,
    30: headers.GetMaxOffsetRequestHeader,
    31: headers.GetMinOffsetRequestHeader,
    32: headers.GetEarliestMsgStoretimeRequestHeader,
    33: headers.ViewMessageRequestHeader,
    35: headers.UnregisterClientRequestHeader,
    36: headers.ConsumerSendMsgBackRequestHeader,
    37: headers.EndTransactionRequestHeader,
    38: headers.GetConsumerListByGroupRequestHeader,
    39: headers.CheckTransactionStateRequestHeader,
    40: headers.NotifyConsumerIdsChangedRequestHeader,
    100: headers.PutKVConfigRequestHeader,
    101: headers.GetKVConfigRequestHeader,
    102: headers.DeleteKVConfigRequestHeader,
    103: headers.RegisterBrokerRequestHeader,
    104: headers.UnRegisterBrokerRequestHeader,
    105: headers.GetRouteInfoRequestHeader,
    202: headers.GetTopicStatsInfoRequestHeader,
    203: headers.GetConsumerConnectionListRequestHeader,
    204: headers.GetProducerConnectionListRequestHeader,
    205: headers.WipeWritePermOfBrokerRequestHeader,
    207: headers.DeleteSubscriptionGroupRequestHeader,
    208: headers.GetConsumeStatsRequestHeader,
    215: headers.DeleteTopicRequestHeader,
    216: headers.DeleteTopicFromNamesrvRequestHeader,
    219: headers.GetKVListByNamespaceRequestHeader,
    222: headers.ResetOffsetRequestHeader,
    224: headers.GetTopicsByClusterRequestHeader,
    300: headers.QueryTopicConsumeByWhoRequestHeader,
    307: headers.GetConsumerRunningInfoRequestHeader,
    310: headers.SendMessageRequestHeaderV2,
    315: headers.ViewBrokerStatsDataRequestHeader,
    320: headers.SendMessageRequestHeaderV2,
    322: headers.QueryDataVersionRequestHeader,
    327: headers.AddWritePermOfBrokerRequestHeader,
    361: headers.PullMessageRequestHeader,
}
# Requests without a typed header; what fields they have are for signatures.
BODY_ONLY = frozenset({28, 34, 41, 42, 46, 106, 200, 201, 206})
RESPONSE_HEADERS: dict[int, type[headers.Header]] = {
    10: headers.SendMessageResponseHeader,
    11: headers.PullMessageResponseHeader,
    12: headers.QueryMessageResponseHeader,
    14: headers.QueryConsumerOffsetResponseHeader,
    29: headers.SearchOffsetResponseHeader,
    30: headers.GetMaxOffsetResponseHeader,
    31: headers.GetMinOffsetResponseHeader,
    32: headers.GetEarliestMsgStoretimeResponseHeader,
    101: headers.GetKVConfigResponseHeader,
    103: headers.RegisterBrokerResponseHeader,
    205: headers.WipeWritePermOfBrokerResponseHeader,
    310: headers.SendMessageResponseHeader,
    320: headers.SendMessageResponseHeader,
    322: headers.QueryDataVersionResponseHeader,
    327: headers.AddWritePermOfBrokerResponseHeader,
    361: headers.PullMessageResponseHeader,
}
REQUEST_BODIES: dict[int, type[JsonBody]] = {
    34: heartbeat.HeartbeatData,
    41: bodies.LockBatchRequestBody,
    42: bodies.UnlockBatchRequestBody,
    46: bodies.CheckClientRequestBody,
    200: bodies.SubscriptionGroupConfig,
    322: route.DataVersion,
}
RESPONSE_BODIES: dict[int, type[JsonBody]] = {
    21: route.TopicConfigTableBody,
    28: route.KVTable,
    38: bodies.GetConsumerListByGroupResponseBody,
    41: bodies.LockBatchResponseBody,
    43: bodies.ConsumerOffsetTableBody,
    45: bodies.DelayOffsetTableBody,
    105: route.TopicRouteData,
    106: route.ClusterInfo,
    201: bodies.SubscriptionGroupTableBody,
    202: bodies.TopicStatsTable,
    203: bodies.ConsumerConnection,
    204: bodies.ProducerConnection,
    206: route.TopicList,
    208: bodies.ConsumeStats,
    219: route.KVTable,
    222: bodies.ResetOffsetBody,
    224: route.TopicList,
    300: bodies.GroupList,
    304: route.TopicList,
    305: route.TopicList,
    322: route.DataVersion,
}


@dataclass(frozen=True)
class Recorded:
    """One recorded frame and what its recorder noted."""

    file: str
    frame: bytes
    request_code: int
    code: int
    flag: int
    opaque: int

    def __str__(self) -> str:
        return self.file

    @property
    def is_java(self) -> bool:
        return self.file.startswith(JAVA_WRITERS)

    @property
    def is_dledger(self) -> bool:
        return self.file.startswith("dledger-")

    def command(self) -> RemotingCommand:
        (frame,) = FrameDecoder().feed(self.frame)
        return decode(frame)


def _recorded() -> Iterator[Recorded]:
    for noted in json.loads((FRAMES / "manifest.json").read_text()):
        yield Recorded(
            noted["file"],
            (FRAMES / noted["file"]).read_bytes(),
            *(noted[name] for name in ("request_code", "code", "flag", "opaque")),
        )


def _id(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


ALL = list(_recorded())


@pytest.mark.parametrize("recorded", ALL, ids=_id)
def test_recorded_frame_survives_decode_and_encode(recorded: Recorded) -> None:
    command = recorded.command()
    assert (command.code, command.flag, command.opaque) == (
        recorded.code,
        recorded.flag,
        recorded.opaque,
    )
    again = encode(command)
    if recorded.is_java:
        assert again == recorded.frame
    else:
        assert decode(again[4:]) == command


def _typed_header(recorded: Recorded, command: RemotingCommand) -> type[headers.Header] | None:
    if recorded.is_dledger or not command.ext_fields:
        return None
    if command.is_response:
        return RESPONSE_HEADERS.get(recorded.request_code) if command.code in (0, 19) else None
    if recorded.request_code in BODY_ONLY:
        return None
    return REQUEST_HEADERS[recorded.request_code]


WITH_HEADER = [
    (one, header_class)
    for one in ALL
    if (header_class := _typed_header(one, one.command())) is not None
]


@pytest.mark.parametrize(("recorded", "header_class"), WITH_HEADER, ids=_id)
def test_recorded_ext_fields_survive_their_typed_header(
    recorded: Recorded, header_class: type[headers.Header]
) -> None:
    command = recorded.command()
    fields = command.header(header_class).to_ext_fields()
    sent = command.ext_fields or {}
    for key in fields.keys() & sent.keys():
        # The C++ client sends its booleans as 0 and 1.
        booleans = {"true": ("true", "1"), "false": ("false", "0")}
        assert sent[key] in booleans.get(fields[key], (fields[key],))
    # What we add is a default of a primitive that the peer left out.
    assert {fields[key] for key in fields.keys() - sent.keys()} <= {"false", "0"}


def _typed_body(recorded: Recorded, command: RemotingCommand) -> type[JsonBody] | None:
    if recorded.is_dledger or not command.body or (command.is_response and command.code):
        return None
    table = RESPONSE_BODIES if command.is_response else REQUEST_BODIES
    return table.get(recorded.request_code)


WITH_BODY = [
    (one, body_class) for one in ALL if (body_class := _typed_body(one, one.command())) is not None
]


@pytest.mark.parametrize(("recorded", "body_class"), WITH_BODY, ids=_id)
def test_recorded_body_survives_its_typed_body(
    recorded: Recorded, body_class: type[JsonBody]
) -> None:
    command = recorded.command()
    body = body_class.decode(command.body)
    assert body_class.decode(body.encode()) == body
    if recorded.file.startswith("java-4.9.3"):
        assert _unordered(lenient_json.read(body.encode())) == _unordered(
            lenient_json.read(command.body)
        )


def _unordered(value: object) -> object:
    """Java's sets are lists in no order."""
    if isinstance(value, dict):
        return {key: _unordered(member) for key, member in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(item) for item in value), key=repr)
    return value


@pytest.mark.parametrize(
    "recorded",
    [one for one in ALL if one.request_code == 103 and not one.flag],
    ids=_id,
)
def test_recorded_registration_is_read_in_both_forms(recorded: Recorded) -> None:
    command = recorded.command()
    header = command.header(headers.RegisterBrokerRequestHeader)
    body = route.RegisterBrokerBody.decode(command.body, compressed=header.compressed)
    again = body.encode(compressed=header.compressed)
    assert route.RegisterBrokerBody.decode(again, compressed=header.compressed) == body
    assert all(name == topic.topic_name for name, topic in body.topic_config_table.items())
