"""Who may do what: every request code without key, with a wrong one, and with too little."""

import json
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import fail, maybeDeferred

from ledgermq.broker.access.codes import CODES, needs_of
from ledgermq.broker.access.guard import Guard
from ledgermq.broker.access.needs import Surroundings
from ledgermq.broker.access.rights import Need
from ledgermq.broker.access.rules import Permission, parse_rules
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.record import encode_record
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from ledgermq.state.errors import AccessDeniedError
from tests.unit.broker.parts import ListConnection


class Log:
    """Records by their places."""

    def __init__(self, records: dict[int, bytes]) -> None:
        self._records = records

    def record_at(self, physical_offset: int) -> bytes | None:
        return self._records.get(physical_offset)


def record(topic: str, properties: str = "", *, sys_flag: int = 0) -> bytes:
    host = (b"\x7f\x00\x00\x01", 10911)
    return encode_record(
        topic.encode(), 0, 0, 7, 0, sys_flag, 0, host, 0, host, 0, 0, b"body", properties.encode()
    )


def half(topic: str) -> bytes:
    return record("RMQ_SYS_TRANS_HALF_TOPIC", f"REAL_TOPIC\x01{topic}\x02REAL_QID\x010")


def id_of(place: int) -> str:
    return encode_offset_id(b"\x7f\x00\x00\x01", 10911, place)


RULES = {
    "globalWhiteRemoteAddresses": ["10.9.9.9"],
    "accounts": [
        {
            "accessKey": "orders-app",
            "secretKey": "secret-1",
            "topicPerms": ["orders=PUB|SUB", "audit=DENY", "feed=SUB", "in=PUB"],
            "groupPerms": ["readers=SUB"],
        },
        {"accessKey": "operator", "secretKey": "secret-2", "admin": True},
        {
            "accessKey": "at-home",
            "secretKey": "secret-3",
            "whiteRemoteAddress": "10.8.8.*",
            "topicPerms": ["audit=PUB"],
        },
        {
            "accessKey": "half-admin",
            "secretKey": "secret-4",
            "admin": True,
            "topicPerms": ["orders=PUB"],
            "defaultGroupPerm": "SUB",
        },
        {
            "accessKey": "greedy-app",
            "secretKey": "secret-5",
            "defaultTopicPerm": "PUB|SUB",
            "defaultGroupPerm": "SUB",
        },
        {
            "accessKey": "curious-app",
            "secretKey": "secret-8",
            "defaultTopicPerm": "SUB",
            "groupPerms": ["own=SUB"],
        },
        {"accessKey": "idle-app", "secretKey": "secret-6"},
        {
            "accessKey": "shut-out",
            "secretKey": "secret-7",
            "topicPerms": ["orders=DENY"],
            "groupPerms": ["readers=DENY"],
        },
    ],
}
HOST = "10.0.0.1"
USER = Credentials(access_key="orders-app", secret_key="secret-1")
OPERATOR = Credentials(access_key="operator", secret_key="secret-2")
IDLE = Credentials(access_key="idle-app", secret_key="secret-6")
SHUT_OUT = Credentials(access_key="shut-out", secret_key="secret-7")
CURIOUS = Credentials(access_key="curious-app", secret_key="secret-8")
GREEDY = Credentials(access_key="greedy-app", secret_key="secret-5")
HALF_ADMIN = Credentials(access_key="half-admin", secret_key="secret-4")
# Messages by their places in the log; what is there besides, and what is not.
STORED = {
    100: record("orders"),
    200: record("audit"),
    300: half("orders"),
    400: half("audit"),
    500: record("SCHEDULE_TOPIC_XXXX", "REAL_TOPIC\x01orders\x02REAL_QID\x010"),
}
HIDDEN = {
    600: record("rmq_sys_LEDGERMQ_STATE", sys_flag=TRANSACTION_PREPARED),
    700: record("rmq_sys_LEDGERMQ_STATE"),
    800: record("orders", sys_flag=TRANSACTION_PREPARED),
    900: record("TRANS_CHECK_MAX_TIME_TOPIC"),
    1000: record("RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    1100: b"no record at all",
}
NOWHERE = 1200
AROUND = Surroundings(VisibleRecords(Log({**STORED, **HIDDEN})), "DefaultCluster_REPLY_TOPIC")
# Fields that headers must have, and that no right depends on.
OTHERS = {
    "producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "a": "p", "c": "TBW102", "d": "4", "e": "0",
    "f": "0", "g": "0", "h": "0", "queueOffset": "0", "maxMsgNums": "1", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subVersion": "0", "timestamp": "0", "maxNum": "1",
    "beginTimestamp": "0", "endTimestamp": "1", "key": "k", "clientID": "c",
}  # fmt: skip


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    table = RulesTable(tmp_path / "plain_acl.yml", lambda: 0)
    table.rules = parse_rules(RULES)
    return Guard(table, AROUND)


def command(code: int, body: bytes = b"", /, **fields: str) -> RemotingCommand:
    return RemotingCommand(code=code, ext_fields=fields or None, body=body)


def signed(who: Credentials, code: int, body: bytes = b"", /, **fields: str) -> RemotingCommand:
    request = command(code, body, **fields)
    request.ext_fields = who.signed(request.ext_fields, body)
    return request


def refusal(guard: Guard, request: RemotingCommand, host: str = HOST) -> str:
    """Why a request is refused; empty when it passes."""
    try:
        guard.check(host, request)
    except AccessDeniedError as error:
        return str(error)
    return ""


def beat(*consumers: tuple[str, str]) -> bytes:
    data = [
        {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
        for group, topic in consumers
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": data}).encode()


# A message that comes back, and the end of a transaction.
BACK = {"offset": "100", "group": "readers", "delayLevel": "0"}
END = {
    "producerGroup": "p", "tranStateTableOffset": "7", "commitLogOffset": "300",
    "commitOrRollback": "8", "msgId": "id",
}  # fmt: skip
# What passes with a resource of its own, and the same with one that is not; code, fields, body.
CASES: list[tuple[RequestCode, dict[str, str], bytes, dict[str, str], bytes]] = [
    (RequestCode.SEND_MESSAGE, {"topic": "orders"}, b"x", {"topic": "feed"}, b"x"),
    (RequestCode.SEND_MESSAGE_V2, {"b": "orders"}, b"x", {"b": "other"}, b"x"),
    (RequestCode.SEND_BATCH_MESSAGE, {"b": "in"}, b"x", {"b": "audit"}, b"x"),
    (RequestCode.SEND_REPLY_MESSAGE, {"topic": "DefaultCluster_REPLY_TOPIC"}, b"",
     {"topic": "payments"}, b""),
    (RequestCode.SEND_REPLY_MESSAGE_V2, {"b": "DefaultCluster_REPLY_TOPIC"}, b"",
     {"b": "payments"}, b""),
    (RequestCode.SEND_REPLY_MESSAGE, {"topic": "orders"}, b"",
     {"topic": "payments_REPLY_TOPIC"}, b""),
    (RequestCode.SEND_REPLY_MESSAGE_V2, {"b": "in"}, b"", {"b": "_REPLY_TOPIC"}, b""),
    (RequestCode.SEND_MESSAGE, {"topic": "orders"}, b"x", {"topic": ""}, b"x"),
    (RequestCode.PULL_MESSAGE, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "feed", "consumerGroup": "%RETRY%readers"}, b""),
    (RequestCode.PULL_MESSAGE, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "feed", "consumerGroup": ""}, b""),
    (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "feed", "consumerGroup": "others"}, b""),
    (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "feed"}, b"", {}, b""),
    (RequestCode.SEND_MESSAGE_V2, {"b": "%RETRY%readers"}, b"", {"b": "%RETRY%others"}, b""),
    (RequestCode.CONSUMER_SEND_MSG_BACK, BACK | {"originTopic": "orders"}, b"",
     BACK | {"originTopic": "orders", "group": "others"}, b""),
    (RequestCode.CONSUMER_SEND_MSG_BACK, BACK, b"", BACK | {"originTopic": "feed"}, b""),
    (RequestCode.CONSUMER_SEND_MSG_BACK, BACK, b"", BACK | {"offset": "200"}, b""),
    (RequestCode.END_TRANSACTION, END, b"", END | {"commitLogOffset": "400"}, b""),
    (RequestCode.PULL_MESSAGE, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "in", "consumerGroup": "readers"}, b""),
    (RequestCode.LITE_PULL_MESSAGE, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "feed", "consumerGroup": "others"}, b""),
    (RequestCode.PULL_MESSAGE, {"topic": "%RETRY%readers", "consumerGroup": "readers"}, b"",
     {"topic": "%DLQ%readers", "consumerGroup": "readers"}, b""),
    (RequestCode.QUERY_CONSUMER_OFFSET, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "feed", "consumerGroup": "others"}, b""),
    (RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "feed", "consumerGroup": "readers"}, b"",
     {"topic": "other", "consumerGroup": "readers"}, b""),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "feed", "group": "readers"}, b"",
     {"topic": "feed", "group": "others"}, b""),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
     {"topic": "feed", "group": "readers", "consumerGroup": "readers"}, b"",
     {"topic": "feed", "group": "others", "consumerGroup": "readers"}, b""),
    (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "feed", "group": "readers"}, b"",
     {"topic": "feed", "group": "others"}, b""),
    (RequestCode.QUERY_MESSAGE, {"topic": "feed", "key": "k"}, b"", {"topic": "audit"}, b""),
    (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "100"}, b"", {"offset": "200"}, b""),
    (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "100"}, b"", {"offset": "500"}, b""),
    (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"msgId": id_of(100), "consumerGroup": "readers"}, b"",
     {"msgId": id_of(100), "consumerGroup": "others"}, b""),
    (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"msgId": id_of(100), "consumerGroup": "readers"}, b"",
     {"msgId": id_of(200), "consumerGroup": "readers"}, b""),
    (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "readers", "destGroup": "readers"}, b"",
     {"srcGroup": "readers", "destGroup": "others"}, b""),
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "in"}, b"", {"topic": "other"}, b""),
    (RequestCode.GET_MAX_OFFSET, {"topic": "in"}, b"", {"topic": "audit"}, b""),
    (RequestCode.GET_MIN_OFFSET, {"topic": "feed"}, b"", {"topic": "audit"}, b""),
    (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "feed"}, b"", {"topic": "other"}, b""),
    (RequestCode.HEART_BEAT, {}, beat(("readers", "feed"), ("readers", "%RETRY%readers")),
     {}, beat(("readers", "feed"), ("readers", "in"))),
    (RequestCode.HEART_BEAT, {}, beat(), {}, beat(("others", "feed"))),
    (RequestCode.UNREGISTER_CLIENT, {"clientID": "c"}, b"", {"consumerGroup": "others"}, b""),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "readers"}, b"",
     {"consumerGroup": "others"}, b""),
    (RequestCode.CHECK_CLIENT_CONFIG, {},
     b'{"clientId":"c","group":"readers","subscriptionData":{"topic":"feed"}}',
     {}, b'{"clientId":"c","group":"readers","subscriptionData":{"topic":"in"}}'),
    (RequestCode.LOCK_BATCH_MQ, {}, b'{"consumerGroup":"readers","clientId":"c"}',
     {}, b'{"consumerGroup":"others","clientId":"c"}'),
    (RequestCode.UNLOCK_BATCH_MQ, {}, b'{"consumerGroup":"readers","clientId":"c"}',
     {}, b'{"consumerGroup":"others","clientId":"c"}'),
]  # fmt: skip


@pytest.mark.parametrize(("code", "own", "own_body", "foreign", "foreign_body"), CASES)
def test_account_reaches_its_own_resources_only(
    guard: Guard,
    code: RequestCode,
    own: dict[str, str],
    own_body: bytes,
    foreign: dict[str, str],
    foreign_body: bytes,
) -> None:
    own, foreign = OTHERS | own, OTHERS | foreign
    assert refusal(guard, signed(USER, code, own_body, **own)) == ""
    assert "ermission for" in refusal(guard, signed(USER, code, foreign_body, **foreign))
    assert refusal(guard, signed(OPERATOR, code, foreign_body, **foreign)) == ""


@pytest.mark.parametrize("who", [USER, GREEDY, HALF_ADMIN])
@pytest.mark.parametrize("place", [*HIDDEN, NOWHERE, -1, 2**63 - 1])
def test_place_without_a_message_is_refused_whatever_is_there(
    guard: Guard, who: Credentials, place: int
) -> None:
    """Of what is hidden and of what is not there the same is told."""
    direct = {"msgId": id_of(place), "consumerGroup": "readers"}
    for code, fields, shown in (
        (RequestCode.CONSUMER_SEND_MSG_BACK, BACK | {"offset": str(place)}, place),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)}, place),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, direct, id_of(place)),
    ):
        text = refusal(guard, signed(who, code, **fields))
        assert text == f"no message that a client may read is at {shown}"
    end = END | {"commitLogOffset": str(place)}
    assert refusal(guard, signed(who, RequestCode.END_TRANSACTION, **end)) == (
        f"no half message is at {place}"
    )


def test_half_message_is_found_by_the_end_of_its_transaction_only(guard: Guard) -> None:
    for code, fields in (
        (RequestCode.CONSUMER_SEND_MSG_BACK, BACK | {"offset": "300"}),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "300"}),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"msgId": id_of(300), "consumerGroup": "readers"}),
    ):
        assert "no message that a client may read" in refusal(guard, signed(USER, code, **fields))
    assert "no half message" in refusal(
        guard, signed(USER, RequestCode.END_TRANSACTION, **END | {"commitLogOffset": "100"})
    )


def test_default_permission_opens_no_topic_where_messages_of_others_wait(guard: Guard) -> None:
    assert refusal(guard, signed(GREEDY, RequestCode.VIEW_MESSAGE_BY_ID, offset="100")) == ""
    waiting = refusal(guard, signed(GREEDY, RequestCode.VIEW_MESSAGE_BY_ID, offset="500"))
    assert waiting == (
        "No default permission for topic:SCHEDULE_TOPIC_XXXX: accessKey=greedy-app needs SUB"
    )
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_LEDGERMQ_STATE"):
        fields = OTHERS | {"topic": topic, "consumerGroup": "readers"}
        pull = signed(GREEDY, RequestCode.PULL_MESSAGE, **fields)
        assert "No default permission" in refusal(guard, pull)
        assert refusal(guard, signed(OPERATOR, RequestCode.PULL_MESSAGE, **fields)) == ""


def test_defaults_let_nobody_read_where_messages_of_all_topics_come_to(guard: Guard) -> None:
    """Dead letters gave who may read most topics the messages of those that it may not read."""
    for topic in ("RMQ_SYS_TRACE_TOPIC", "OFFSET_MOVED_EVENT", AROUND.reply_topic):
        fields = OTHERS | {"topic": topic, "consumerGroup": "readers"}
        pull = signed(GREEDY, RequestCode.PULL_MESSAGE, **fields)
        assert "No default permission" in refusal(guard, pull)
        assert refusal(guard, signed(OPERATOR, RequestCode.PULL_MESSAGE, **fields)) == ""
        # Clients write traces there.
        assert refusal(guard, signed(GREEDY, RequestCode.SEND_MESSAGE, **fields)) == ""


def test_topic_that_is_only_named_like_that_of_replies_is_any_topic(guard: Guard) -> None:
    fields = OTHERS | {"topic": "PRICE_REPLY_TOPIC", "consumerGroup": "readers"}
    assert refusal(guard, signed(GREEDY, RequestCode.PULL_MESSAGE, **fields)) == ""


def test_dead_letters_are_read_by_who_may_read_for_their_group(guard: Guard) -> None:
    fields = OTHERS | {"topic": "%DLQ%readers", "consumerGroup": "own"}
    for who, refused in ((GREEDY, ""), (CURIOUS, "No default permission for topic:%DLQ%readers")):
        assert refusal(guard, signed(who, RequestCode.PULL_MESSAGE, **fields)).startswith(refused)
    assert refusal(guard, signed(CURIOUS, RequestCode.PULL_MESSAGE, **fields)) != ""
    fields["topic"] = "%DLQ%own"
    assert refusal(guard, signed(CURIOUS, RequestCode.PULL_MESSAGE, **fields)) == ""


def test_every_code_wants_an_account_and_its_signature(guard: Guard) -> None:
    unknown = Credentials(access_key="stranger", secret_key="secret-1")
    wrong = Credentials(access_key="operator", secret_key="secret-1")
    for code in RequestCode:
        assert "No accessKey" in refusal(guard, command(code)), code
        assert refusal(guard, signed(unknown, code)) == "No acl config for stranger", code
        text = refusal(guard, signed(wrong, code))
        assert text == "Check signature failed for accessKey=operator", code
    assert guard.refused_count == 3 * len(RequestCode)


@pytest.mark.parametrize("who", [IDLE, SHUT_OUT])
def test_account_without_a_right_learns_nothing(guard: Guard, who: Credentials) -> None:
    for code in RequestCode:
        try:
            text = refusal(guard, signed(who, code, beat(), **OTHERS | {"topic": "t", "b": "t"}))
        except RemoteProtocolError:
            continue
        assert text, code.name
    text = refusal(guard, signed(who, RequestCode.GET_ALL_TOPIC_CONFIG))
    assert text == (
        f"accessKey={who.access_key} has no right to any topic or group, which is needed for"
        " request code=21"
    )
    assert refusal(guard, signed(USER, RequestCode.GET_ALL_TOPIC_CONFIG)) == ""


def test_rows_of_admins_want_an_admin(guard: Guard) -> None:
    assert _OF_ADMINS == {code for code, row in CODES.items() if row.touches is None}
    for code in _OF_ADMINS:
        text = refusal(guard, signed(USER, code, b"{}"))
        assert text == (
            f"Need admin permission for request code={int(code)}, but accessKey=orders-app is not"
        )
        assert refusal(guard, signed(OPERATOR, code)) == ""


_OF_ADMINS = {
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.QUERY_CORRECTION_OFFSET,
}  # fmt: skip


def test_code_without_a_row_is_refused_to_everybody(guard: Guard) -> None:
    with pytest.raises(AccessDeniedError, match="request code=4711 is none"):
        needs_of(command(4711), AROUND)
    assert "request code=4711 is none" in refusal(guard, signed(USER, 4711))
    reached: list[Any] = []
    table = guard.protect({4711: lambda connection, request: reached.append(request)})
    for host, who in ((HOST, OPERATOR), ("10.9.9.9", USER)):
        peer: Any = ListConnection(f"{host}:1")
        with pytest.raises(AccessDeniedError, match="request code=4711 is none"):
            table[4711](peer, signed(who, 4711))
    assert not reached


def test_white_addresses_need_no_signature(guard: Guard) -> None:
    request = command(RequestCode.UPDATE_BROKER_CONFIG)
    assert refusal(guard, request, "10.9.9.9") == ""
    at_home = command(RequestCode.SEND_MESSAGE, **OTHERS, topic="audit", AccessKey="at-home")
    assert refusal(guard, at_home, "10.8.8.1") == ""
    assert "Check signature failed" in refusal(guard, at_home, HOST)


def test_white_address_of_an_account_gives_nothing_but_its_own_rights(guard: Guard) -> None:
    """Who knew the name of any account there could make itself an admin."""
    for code, fields in (
        (RequestCode.SEND_MESSAGE, {"topic": "orders"}),
        (RequestCode.UPDATE_BROKER_CONFIG, {}),
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "at-home", "admin": "true"}),
    ):
        request = command(code, **OTHERS, **fields, AccessKey="at-home")
        assert refusal(guard, request, "10.8.8.1") != "", code
    named = command(RequestCode.SEND_MESSAGE, **OTHERS, topic="audit", AccessKey="at-home")
    account = guard.check("10.8.8.1", named)
    assert account is not None and account.access_key == "at-home"


def test_signature_covers_fields_and_body(guard: Guard) -> None:
    own = OTHERS | {"topic": "orders", "queueId": "1"}
    request = signed(USER, RequestCode.SEND_MESSAGE, b"body", **own)
    fields = dict(request.ext_fields or {})
    assert refusal(guard, request) == ""
    for change in ({"queueId": "2"}, {"more": "x"}, {"Signature": ""}, {"Signature": "\ud800"}):
        request.ext_fields = {**fields, **change}
        assert "Check signature failed" in refusal(guard, request)
    request.ext_fields = {**fields, "_UNIQUE_KEY_QUERY": "true"}
    assert refusal(guard, request) == ""
    request.body = b"other"
    assert "Check signature failed" in refusal(guard, request)


def test_admin_with_lists_is_held_to_them(guard: Guard) -> None:
    own, foreign = OTHERS | {"topic": "orders"}, OTHERS | {"topic": "feed"}
    assert refusal(guard, signed(HALF_ADMIN, RequestCode.SEND_MESSAGE, **own)) == ""
    text = refusal(guard, signed(HALF_ADMIN, RequestCode.SEND_MESSAGE, **foreign))
    assert text == "No default permission for topic:feed: accessKey=half-admin needs PUB"
    assert refusal(guard, signed(HALF_ADMIN, RequestCode.UPDATE_BROKER_CONFIG)) == ""


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"clientID":"c","consumerDataSet":{}}',
             b'{"clientID":"c","consumerDataSet":[1]}', b"[" * 100_000],
)  # fmt: skip
def test_heart_beat_that_hides_what_it_touches_is_refused(guard: Guard, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        guard.check(HOST, signed(USER, RequestCode.HEART_BEAT, body))


def test_protected_processor_is_not_reached_without_leave(guard: Guard) -> None:
    reached: list[Any] = []

    class Peer:
        peer_host, own_host = HOST, ""

    table = guard.protect({310: lambda connection, request: reached.append(request)})
    peer: Any = Peer()
    fields = OTHERS | {"b": "orders"}
    with pytest.raises(AccessDeniedError):
        table[310](peer, command(310, **fields))
    assert not reached
    request = signed(USER, 310, **fields)
    table[310](peer, request)
    assert reached == [request]


def test_an_account_is_told_where_it_signed_or_is_at_its_own_address(guard: Guard) -> None:
    """It is charged for what it makes: nobody else may name it."""
    told: list[str | None] = []
    table = guard.protect({310: lambda connection, request: told.append(connection.account)})
    peer: Any = ListConnection()
    for host, request in (
        (HOST, signed(USER, 310, **OTHERS, b="orders")),
        ("10.9.9.9", command(310, **OTHERS, b="orders", AccessKey=USER.access_key)),
        ("10.8.8.1", command(310, **OTHERS, b="audit", AccessKey="at-home")),
    ):
        peer.peer_host = host
        table[310](peer, request)
    assert told == [USER.access_key, None, "at-home"]


def test_needs_name_topic_and_group_as_they_stand_in_the_header() -> None:
    fields = OTHERS | {"topic": "t", "consumerGroup": "g"}
    request = command(RequestCode.PULL_MESSAGE, **fields)
    assert list(needs_of(request, AROUND) or ()) == [
        Need(False, "t", Permission.SUB), Need(True, "g", Permission.SUB),
    ]  # fmt: skip


def test_account_without_rights_reads_no_queue(guard: Guard) -> None:
    """Its units tell places, sizes and tags of messages."""
    text = refusal(guard, signed(USER, RequestCode.QUERY_CONSUME_QUEUE, topic="audit"))
    assert text == "No permission for topic:audit: accessKey=orders-app needs SUB"


@pytest.mark.parametrize("is_later", [False, True])
def test_what_only_a_processor_can_refuse_is_told_as_well(guard: Guard, is_later: bool) -> None:
    told: list[tuple[int, str]] = []
    guard._on_refused = lambda host, request, error: told.append((request.code, str(error)))
    error = AccessDeniedError("the half message is of another account")

    def refuse(connection: Any, request: RemotingCommand) -> Any:
        if is_later:
            return fail(error)
        raise error

    peer: Any = ListConnection()
    peer.peer_host = HOST
    request = signed(USER, 310, **OTHERS, b="orders")
    answer = maybeDeferred(guard.protect({310: refuse})[310], peer, request)
    failures: list[Any] = []
    answer.addErrback(failures.append)
    assert failures[0].value is error
    assert told == [(310, str(error))] and guard.refused_count == 1
