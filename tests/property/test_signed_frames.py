"""Signed frames: the quick road lets pass what the guard lets pass, and nothing else.

Signatures are asked of both forms of the loops; who may do what of the two guards, for accounts
that may, may not, are unknown, and for frames that were changed after they were signed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.broker.access import quick_guard
from ledgermq.broker.access.guard import Guard
from ledgermq.broker.access.needs import Surroundings
from ledgermq.broker.access.quick_guard import QuickGuard
from ledgermq.broker.access.quotas import Quotas
from ledgermq.broker.access.rules import parse_rules
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.protocol.command import decode
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.library_hash import find_library_sha1
from ledgermq.protocol.quick_frames import read_quick_pull, read_quick_sends
from ledgermq.protocol.signature import Credentials, is_signed_by
from ledgermq.state.errors import AccessDeniedError
from tests.kernel_forms import forms_of
from tests.unit.broker.guarded import Log
from tests.unit.broker.parts import ListConnection

FORMS = forms_of("ledgermq.protocol.signed_frames")
USER = Credentials(access_key="orders-app", secret_key="secret-1")
LONG = Credentials(access_key="long-secret", secret_key="s" * 100)
OPERATOR = Credentials(access_key="operator", secret_key="secret-3")
HELD = Credentials(access_key="held-admin", secret_key="secret-4")
HOME = Credentials(access_key="at-home", secret_key="secret-5")
STRANGER = Credentials(access_key="stranger", secret_key="secret-1")
FORGED = Credentials(access_key="operator", secret_key="secret-1")
KNOWN = (USER, LONG, OPERATOR, HELD, HOME)
RULES: dict[str, Any] = {
    "globalWhiteRemoteAddresses": ["10.9.9.*"],
    "accounts": [
        {
            "accessKey": USER.access_key, "secretKey": USER.secret_key,
            "topicPerms": ["orders=PUB|SUB", "in=PUB", "feed=SUB", "audit=DENY"],
            "groupPerms": ["readers=SUB"],
        },
        {
            "accessKey": LONG.access_key, "secretKey": LONG.secret_key,
            "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB", "topicPerms": ["audit=DENY"],
        },
        {"accessKey": OPERATOR.access_key, "secretKey": OPERATOR.secret_key, "admin": True},
        {
            "accessKey": HELD.access_key, "secretKey": HELD.secret_key, "admin": True,
            "topicPerms": ["feed=SUB"], "defaultGroupPerm": "SUB",
        },
        {
            "accessKey": HOME.access_key, "secretKey": HOME.secret_key,
            "topicPerms": ["orders=PUB"], "whiteRemoteAddress": "10.8.8.8",
        },
    ],
}  # fmt: skip
TOPICS = ("orders", "in", "feed", "audit", "other", "%RETRY%readers", "%RETRY%others",
          "SCHEDULE_TOPIC_XXXX", "")  # fmt: skip
GROUPS = ("readers", "others", "")
HOSTS = ("10.0.0.1", "10.0.0.1", "10.9.9.1", "10.8.8.8")
SEND = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700", "h": "9",
    "i": "UNIQ_KEY\x01id\x02WAIT\x01true\x02TAGS\x01t", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL = {
    "consumerGroup": "readers", "topic": "orders", "queueId": "3", "queueOffset": "17",
    "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "5", "suspendTimeoutMillis": "15000",
    "subVersion": "9", "subscription": "*",
}  # fmt: skip


def frame_of(code: int, fields: dict[str, str], body: bytes) -> bytes:
    header = {
        "code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 7,
        "serializeTypeCurrentRPC": "JSON", "version": 399,
    }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text + body


def keyed_of(form: Any, who: Credentials) -> list[Any]:
    """HMAC with a secret, begun with objects of hashlib and, where that is, with its library."""
    secret = who.secret_key.encode()
    library = find_library_sha1() if form.COMPILED else None
    return [form.begin_hmac(secret, road) for road in {None, library}]


def is_signed_quick(form: Any, frame: bytes, who: Credentials) -> bool | None:
    """None: the frame is left to the other road."""
    found = form.read_signature(frame)
    if found is None:
        return None
    access_key, signature, content, body_at = found
    assert access_key.decode() == (decode(frame).ext_fields or {})["AccessKey"]
    answers = {
        form.is_signature_right(signature, content, frame[body_at:], keyed)
        for keyed in keyed_of(form, who)
    }
    assert len(answers) == 1
    return bool(answers.pop())


_MORE = st.dictionaries(
    st.sampled_from(["_UNIQUE_KEY_QUERY", "bname", "Access", "Signatur", "SignatureX", "zone",
                     "expressionType", "AccessKeyA", "B", "_", "lo"]),
    st.sampled_from(["", "true", "x", "a\x01b\x02", "\x01", 'q"', "back\\slash", "ü"]),
    max_size=4,
)  # fmt: skip


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, Credentials]:
    """Sends and pulls, signed by somebody; some were changed behind the signature."""
    who = draw(st.sampled_from([*KNOWN, *KNOWN, STRANGER, FORGED]))
    is_send = draw(st.booleans())
    fields = dict(SEND if is_send else PULL)
    fields["b" if is_send else "topic"] = draw(st.sampled_from(TOPICS))
    if not is_send:
        fields["consumerGroup"] = draw(st.sampled_from(GROUPS))
        fields |= draw(_MORE)
    body = draw(st.binary(max_size=40)) if is_send or draw(st.booleans()) else b""
    how = draw(st.integers(0, 6))
    fields = fields if how == 0 else who.signed(fields, body)
    if how == 1:
        fields[draw(st.sampled_from(list(fields)))] = draw(
            st.sampled_from(["orders", "feed", "readers", "1", "", "operator"])
        )
    elif how == 2:
        body += draw(st.binary(min_size=1, max_size=3))
    order = draw(st.permutations(list(fields)))
    return frame_of(310 if is_send else 11, {name: fields[name] for name in order}, body), who


@given(frames())
def test_signature_holds_where_it_holds_on_the_long_road(drawn: tuple[bytes, Credentials]) -> None:
    frame, who = drawn
    command = decode(frame)
    answers = [is_signed_quick(form, frame, who) for form in FORMS]
    assert all(answer == answers[0] for answer in answers)
    if answers[0] is not None:
        fields = command.ext_fields or {}
        assert answers[0] == is_signed_by(fields, command.body, who.secret_key)


@given(frames(), st.integers(0, 500), st.binary(max_size=3), st.integers(0, 4))
def test_damaged_frames_are_read_alike(
    drawn: tuple[bytes, Credentials], at: int, put: bytes, gone: int
) -> None:
    """Also those that are not quick: no byte beyond the frame is looked at."""
    frame, who = drawn
    damaged = frame[:at] + put + frame[at + gone :]
    results = [form.read_signature(damaged) for form in FORMS]
    assert all(result == results[0] for result in results)
    if results[0] is not None and (read_quick_sends([damaged]) or read_quick_pull(damaged)):
        command = decode(damaged)
        signed = is_signed_by(command.ext_fields or {}, command.body, who.secret_key)
        assert all(is_signed_quick(form, damaged, who) == signed for form in FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_plain_signed_frame_is_left_to_the_other_road(form: Any) -> None:
    usual = USER.signed(SEND, b"body")
    assert form.read_signature(frame_of(310, usual, b"body")) is not None
    for fields in (
        SEND,
        {name: text for name, text in usual.items() if name != "AccessKey"},
        {name: text for name, text in usual.items() if name != "Signature"},
        USER.signed({**SEND, "x\\y": "1"}, b"body"),
        USER.signed({**SEND, "a": "tab\t"}, b"body"),
        USER.signed({**SEND, "a": "ü"}, b"body"),
        {**usual, "AccessKey": "orders\x01app"},
        USER.signed({**SEND, **{f"x{n}": "" for n in range(32)}}, b"body"),
    ):
        assert form.read_signature(frame_of(310, fields, b"body")) is None
    twice = frame_of(310, {**usual, "AccessKez": "operator"}, b"").replace(b"Kez", b"Key")
    assert form.read_signature(twice) is None
    for size in range(8):
        assert form.read_signature(bytes(size)) is None


@given(frames(), st.booleans())
def test_one_look_says_what_two_say(drawn: tuple[bytes, Credentials], is_damaged: bool) -> None:
    """`is_signed` is `read_signature` and `is_signature_right`, for an account that is known."""
    frame, who = drawn
    if is_damaged:
        frame = frame.replace(b"1", b"2", 1)
    for form in FORMS:
        for other in (who, *KNOWN, STRANGER):
            key, found = other.access_key.encode(), form.read_signature(frame)
            for keyed in keyed_of(form, other):
                expected = (
                    found is not None
                    and found[0] == key
                    and form.is_signature_right(found[1], found[2], frame[found[3] :], keyed)
                )
                assert form.is_signed(frame, key, keyed) == expected


_HARD = st.text(st.sampled_from('a1\x01\x02"\\\t\nü/,:{}'), max_size=6)


@given(
    st.dictionaries(st.sampled_from(["a", "c", "i", "l", "n"]), _HARD, max_size=3),
    st.permutations([*SEND, "l", "n", "AccessKey", "Signature"]),
    st.binary(max_size=40),
    st.integers(0, 500),
    st.integers(0, 255),
)
def test_sends_that_count_as_signed_are(
    drawn: dict[str, str], order: list[str], body: bytes, at: int, put: int
) -> None:
    """Whatever stands in the fields, in any order, and with any byte of the frame changed."""
    fields = USER.signed({**SEND, **drawn}, body)
    frame = frame_of(310, {name: fields[name] for name in order if name in fields}, body)
    for one in (frame, frame[:at] + bytes([put]) + frame[at + 1 :]):
        sends = read_quick_sends([one])
        if not sends:
            continue
        key, topics = USER.access_key.encode(), {sends[0][2]: True}
        counts = {
            form.count_signed([one], sends, 0, topics, key, keyed)
            for form in FORMS
            for keyed in keyed_of(form, USER)
        }
        try:
            command = decode(one)
        except ProtocolError:
            assert counts == {0}
            continue
        given_fields = command.ext_fields or {}
        is_signed = given_fields.get("AccessKey") == USER.access_key and is_signed_by(
            given_fields, command.body, USER.secret_key
        )
        # Where a field needs thought it is left to the other road, whoever signed it.
        needs_thought = FORMS[0].read_signature(one) is None
        assert counts == {int(is_signed and not needs_thought)}


@pytest.mark.parametrize("form", FORMS)
def test_no_byte_of_a_signed_send_can_be_changed(form: Any) -> None:
    fields = USER.signed({**SEND, "l": "7", "n": "broker-a"}, b"body")
    frame = frame_of(310, fields, b"body")
    key, keyed = USER.access_key.encode(), form.begin_hmac(USER.secret_key.encode())
    fields_at = frame.index(b'"extFields":{')
    fields_end = frame.index(b"}", fields_at + 13)
    signed_count = 0
    for at in (*range(fields_at, fields_end + 1), *range(len(frame) - 4, len(frame))):
        for put in b'"\\,a1}':
            changed = frame[:at] + bytes([put]) + frame[at + 1 :]
            sends = read_quick_sends([changed])
            if not sends:
                continue
            topics = {sends[0][2]: True}
            count = form.count_signed([changed], sends, 0, topics, key, keyed)
            try:
                command = decode(changed)
            except ProtocolError:
                assert not count
                continue
            assert count == is_signed_by(command.ext_fields or {}, command.body, USER.secret_key)
            signed_count += count
    # Only where the byte that is put stands there already.
    assert signed_count == sum(frame[fields_at : fields_end + 1].count(put) for put in b'"\\,a1}')


def guards(folder: Path) -> tuple[RulesTable, Guard, QuickGuard]:
    table = RulesTable(folder / "plain_acl.yml", lambda: 0)
    table.rules = parse_rules(RULES)
    around = Surroundings(VisibleRecords(Log({})), "DefaultCluster_REPLY_TOPIC")
    guard = Guard(table, around)
    return table, guard, guard.of_quick_road()


def check_alike(guard: Guard, quick: QuickGuard, frame: bytes, host: str) -> bool | None:
    """Asks both guards; returns what the quick one says, None where the frame is not quick."""
    connection: Any = ListConnection(f"{host}:1")
    sends, pull = read_quick_sends([frame]), read_quick_pull(frame)
    if sends:
        passes = quick.count_sends(connection, [frame], sends) == 1
    elif pull is not None:
        fields = decode(frame).ext_fields or {}
        passes = quick.lets_pull(connection, frame, fields["topic"], fields["consumerGroup"])
    else:
        return None
    try:
        account = guard.check(host, decode(frame))
    except (AccessDeniedError, ProtocolError):
        assert not passes and connection.account is None
        return False
    if passes:
        assert connection.account == (None if account is None else account.access_key)
    return passes


@settings(deadline=None)
@given(st.lists(st.tuples(frames(), st.sampled_from(HOSTS)), max_size=8))
def test_what_the_quick_guard_lets_pass_the_guard_lets_pass(
    drawn: list[tuple[tuple[bytes, Credentials], str]],
) -> None:
    _, guard, quick = guards(Path("nowhere"))
    for (frame, _), host in drawn:
        check_alike(guard, quick, frame, host)


@pytest.mark.parametrize("who", KNOWN, ids=lambda who: who.access_key)
def test_usual_frames_pass_the_quick_guard_as_they_pass_the_guard(who: Credentials) -> None:
    """None of them takes the other road for its signature."""
    _, guard, quick = guards(Path("nowhere"))
    passed = 0
    for topic in TOPICS:
        send = frame_of(310, who.signed({**SEND, "b": topic}, b"body"), b"body")
        pulls = [
            frame_of(11, who.signed({**PULL, "topic": topic, "consumerGroup": group}, b""), b"")
            for group in GROUPS
        ]
        for frame in (send, *pulls):
            request = decode(frame)
            try:
                guard.check("10.0.0.1", request)
            except AccessDeniedError:
                assert check_alike(guard, quick, frame, "10.0.0.1") is False
            else:
                assert check_alike(guard, quick, frame, "10.0.0.1") is True
                passed += 1
    assert passed > 0


def test_sends_are_counted_up_to_the_first_that_is_not_let_pass() -> None:
    def frame(who: Credentials, topic: str) -> bytes:
        return frame_of(310, who.signed({**SEND, "b": topic}, b"body"), b"body")

    _, _, quick = guards(Path("nowhere"))
    own, feed = frame(USER, "orders"), frame(USER, "feed")
    wrong = own.replace(b'"e":"1"', b'"e":"2"')
    for chunk, count in (
        ([own, own, own], 3), ([own, feed, own], 1), ([feed, own], 0), ([own, wrong], 1),
        ([wrong], 0), ([own, frame(OPERATOR, "orders")], 1), ([frame(OPERATOR, "audit"), own], 1),
        ([own, frame_of(310, SEND, b"")], 1), ([frame_of(310, SEND, b""), own], 0),
    ):  # fmt: skip
        connection: Any = ListConnection("10.0.0.1:1")
        assert quick.count_sends(connection, chunk, read_quick_sends(chunk)) == count
        assert (connection.account is not None) == bool(count)


def test_rules_that_change_are_in_force_with_the_next_frame() -> None:
    table, _, quick = guards(Path("nowhere"))
    send = frame_of(310, USER.signed(SEND, b""), b"")
    pull = frame_of(11, USER.signed(PULL, b""), b"")

    def passes() -> tuple[bool, bool]:
        connection: Any = ListConnection("10.0.0.1:1")
        return (
            quick.count_sends(connection, [send], read_quick_sends([send])) == 1,
            quick.lets_pull(connection, pull, "orders", "readers"),
        )

    changes: list[tuple[Callable[[dict[str, Any]], None], tuple[bool, bool]]] = [
        (lambda user: None, (True, True)),
        (lambda user: user.update(topicPerms=["orders=PUB"]), (True, False)),
        (lambda user: user.update(topicPerms=["orders=SUB"]), (False, True)),
        (lambda user: user.update(secretKey="secret-9"), (False, False)),
        (lambda user: user.update(accessKey="another-app"), (False, False)),
        (lambda user: None, (True, True)),
    ]
    for change, expected in changes:
        rules = json.loads(json.dumps(RULES))
        change(rules["accounts"][0])
        table.rules = parse_rules(rules)
        assert passes() == expected
    table.rules = parse_rules({"globalWhiteRemoteAddresses": ["10.0.0.1"]})
    assert passes() == (True, True)


def test_account_with_a_quota_takes_the_road_where_requests_are_counted() -> None:
    rules = json.loads(json.dumps(RULES))
    rules["accounts"][0]["maxMessagesPerSecond"] = 1000
    table = RulesTable(Path("nowhere") / "plain_acl.yml", lambda: 0)
    table.rules = parse_rules(rules)
    config = load_broker_config(None, {"brokerIP1": "127.0.0.1"})
    around = Surroundings(VisibleRecords(Log({})), "DefaultCluster_REPLY_TOPIC")
    quick = Guard(table, around, Quotas(config, lambda: 0.0)).of_quick_road()
    connection: Any = ListConnection("10.0.0.1:1")
    for who, count in ((USER, 0), (LONG, 1)):
        send = frame_of(310, who.signed(SEND, b""), b"")
        assert quick.count_sends(connection, [send], read_quick_sends([send])) == count


def test_signature_that_names_its_form_takes_the_other_road() -> None:
    _, _, quick = guards(Path("nowhere"))
    connection: Any = ListConnection("10.0.0.1:1")
    for form, passes in (({}, True), ({"SignForm": "1"}, False), ({"SignForm": "2"}, False)):
        pull = frame_of(11, USER.signed({**PULL, **form}, b""), b"")
        send = frame_of(310, USER.signed({**SEND, **form}, b""), b"")
        assert quick.lets_pull(connection, pull, "orders", "readers") is passes
        assert bool(read_quick_sends([send])) is passes


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_guard, "_REMEMBERED_MAX", 3)
    decisions: dict[Any, bool] = {}
    for number in range(10):
        assert quick_guard._remembered(decisions, number, number % 2 == 0) is (number % 2 == 0)
        assert len(decisions) <= 3


def test_pulls_of_one_connection_are_looked_at_each_with_its_account(tmp_path: Path) -> None:
    """Whose pull passed before is tried first; that gives nobody a right, and keeps none."""

    def pull(who: Credentials, topic: str, group: str) -> bytes:
        return frame_of(11, who.signed({**PULL, "topic": topic, "consumerGroup": group}, b""), b"")

    table, _, quick = guards(tmp_path)
    connection: Any = ListConnection("10.0.0.1:1")
    own, foreign = pull(USER, "orders", "readers"), pull(OPERATOR, "audit", "readers")
    for _ in range(3):
        assert quick.lets_pull(connection, own, "orders", "readers")
        assert connection.account == USER.access_key
        assert not quick.lets_pull(connection, own.replace(b'"32"', b'"31"'), "orders", "readers")
        assert not quick.lets_pull(connection, pull(FORGED, "audit", "g"), "audit", "g")
        assert not quick.lets_pull(connection, pull(USER, "audit", "readers"), "audit", "readers")
        assert connection.account == USER.access_key
        assert quick.lets_pull(connection, foreign, "audit", "readers")
        assert connection.account == OPERATOR.access_key
    assert quick.lets_pull(connection, own, "orders", "readers")
    changed = [
        {**account, "secretKey": "another-secret"} if account["accessKey"] == USER.access_key
        else account
        for account in RULES["accounts"]
    ]  # fmt: skip
    table.rules = parse_rules({**RULES, "accounts": changed})
    assert not quick.lets_pull(connection, own, "orders", "readers")
    renewed = Credentials(access_key=USER.access_key, secret_key="another-secret")
    for _ in range(2):
        assert quick.lets_pull(connection, pull(renewed, "orders", "readers"), "orders", "readers")
    table.rules = parse_rules({**RULES, "accounts": changed[1:]})
    assert not quick.lets_pull(connection, pull(renewed, "orders", "readers"), "orders", "readers")
