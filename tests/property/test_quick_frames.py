"""Quick sends and pulls mean what the same frames mean on the long road, whatever they hold."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.batch import BatchMessage, decode_batch, encode_batch
from ledgermq.protocol.command import decode
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.headers import decode_pull_header
from ledgermq.protocol.properties import TIMERS
from ledgermq.state.errors import BrokerError
from tests.kernel_forms import forms_of
from tests.unit.broker.parts import HOST, ListConnection, Parts

FRAMES = Path(__file__).parents[1] / "interop" / "frames"
FORMS = forms_of("ledgermq.protocol.quick_frames")
GATHER_FORMS = forms_of("ledgermq.broker.sends.gathering")
TAIL = b"CLUSTER\x01DefaultCluster"

_names = st.one_of(
    st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "WAIT", "XWAIT", "A", "DELAYS"]),
    st.sampled_from(
        ["KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "CLUSTER", "INNER_MULTI_DISPATCH", "", "é"]
    ),
    st.sampled_from([*TIMERS, "TIMER_OUT_MS"]),
)
_values = st.one_of(
    st.sampled_from(["true", "key"]),
    st.sampled_from(["true", "false", "TRUE", "1", ""]),
    st.text(max_size=8),
)
_properties = st.lists(st.tuples(_names, _values), max_size=5).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)
)
_numbers = st.one_of(
    st.integers(-3, 9).map(str),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from(["", "07", "-0", "+1", " 1", "1.0", "true", "99999999999999999999"]),
)
_usual = {
    "a": "group", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700", "h": "9",
    "i": "UNIQ_KEY\x01id\x02WAIT\x01true\x02TAGS\x01t", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
_changes = st.dictionaries(
    st.sampled_from([*"abcdefghijklmno", "Signature", ""]),
    st.one_of(_numbers, _properties, st.sampled_from(["T", "U", "true", "false"])),
    max_size=3,
)
_members = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.sampled_from([0, 1, 2, 3, 7, -1]),
        "opaque": st.one_of(st.integers(-(2**33), 2**33), st.just("5")),
        "code": st.sampled_from([10, 310, 320, "310", 310.0]),
        "remark": st.sampled_from([None, "", "x"]),
        "language": st.sampled_from(["JAVA", "GO", "Ü", 3]),
        "version": st.sampled_from([399, -1, 2**40]),
    },
)


def frame_of(header: dict[str, Any], body: bytes, order: list[str], *, compact: bool) -> bytes:
    names = [*order, *(name for name in header if name not in order)]
    separators = (",", ":") if compact else (", ", ": ")
    chosen = {name: header[name] for name in names if name in header}
    text = json.dumps(chosen, separators=separators).encode()
    return len(text).to_bytes(4, "big") + text + body


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Mostly quick sends, one or two of whose parts are odd."""
    fields = {**_usual, "i": draw(_properties), "e": str(draw(st.integers(0, 3)))}
    header: dict[str, Any] = {
        "code": 310, "extFields": fields, "flag": draw(st.sampled_from([0, 2])),
        "language": "JAVA", "opaque": draw(st.integers(0, 2**31 - 1)),
        "serializeTypeCurrentRPC": "JSON", "version": 399,
    }  # fmt: skip
    oddity = draw(st.integers(0, 7))
    if oddity == 0:
        fields.update(draw(_changes))
    elif oddity == 1:
        header.update(draw(_members))
    elif oddity == 2:
        fields.pop(draw(st.sampled_from(list(_usual))))
    order = draw(st.permutations(list(header)))
    return frame_of(header, draw(st.binary(max_size=20)), order, compact=oddity != 3)


def parts() -> Parts:
    leader = Parts().lead()
    for topic in ("T", "U"):
        header = {"code": 310, "extFields": {**_usual, "b": topic}, "opaque": 1}
        request = decode(frame_of(header, b"", list(header), compact=True))
        leader.sends.send(ListConnection(), request)  # type: ignore[arg-type]
    leader.turn.end()
    return leader


def long_road(leader: Parts, frame: bytes) -> tuple[AppendMessage, int, bool]:
    """The message of a frame, its opaque, and whether it is answered."""
    command = decode(frame)
    before = len(leader.store.messages)
    leader.sends.send(ListConnection(), command)  # type: ignore[arg-type]
    leader.turn.end()
    assert len(leader.store.messages) == before + 1
    return leader.store.messages[-1], command.opaque, not command.is_one_way


def check(frame: bytes) -> bool:
    """Compares all forms and both roads; tells whether the frame is a quick send."""
    results = [form.read_quick_sends([frame]) for form in FORMS]
    assert all(result == results[0] for result in results)
    if not results[0]:
        return False
    leader = parts()
    connection = ListConnection()
    for form in GATHER_FORMS:
        topics = {name.encode(): form.OpenTopic(name, 4, 0) for name in ("T", "U")}
        messages, requests = [], []
        total = form.gather(
            results[0], topics, connection, HOST, TAIL, 4_000_000, messages, requests
        )
        if not messages:
            assert (total, requests) == (0, [])
            return False
        ((receiver, opaque, kind, queue_id, count, size, done),) = requests
        found = messages[0], opaque, receiver is connection
        assert long_road(leader, frame) == found
        assert (kind, queue_id, count, done) == (0, found[0].queue_id, 1, None)
        topic = topics[found[0].topic.encode()]
        assert topic.take_count() == (found[0].topic, 1, size)
        assert topic.take_count() == (found[0].topic, 0, 0)
        assert size == total
    return True


@given(frames())
def test_quick_send_is_the_message_that_the_long_road_stores(frame: bytes) -> None:
    try:
        check(frame)
    except (BrokerError, ProtocolError) as error:
        raise AssertionError("taken for quick, refused on the long road") from error


@given(frames(), st.integers(0, 400), st.binary(max_size=3), st.integers(0, 4))
def test_damaged_frames_are_read_alike(frame: bytes, at: int, put: bytes, gone: int) -> None:
    check(frame[:at] + put + frame[at + gone :])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_alike(frame: bytes) -> None:
    assert not check(frame)


_elements = st.lists(
    st.builds(
        BatchMessage,
        flag=st.integers(-(2**31), 2**31 - 1),
        body=st.binary(max_size=30),
        properties=st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"DELAY\x010", b"TRAN_MSG\x01false", b"INNER_MULTI_x", b"A\x01b"]),
            st.sampled_from([f"{name}\x011".encode() for name in TIMERS]),
        ),
    ),
    max_size=5,
)


def gathered_batches(body: bytes) -> list[Any]:
    born = (b"\x0a\x00\x00\x09", 5555)
    arguments = (body, "T", 1, 2, 17, born, HOST, 3, 200)
    return [form.gather_batch(*arguments) for form in GATHER_FORMS]


@given(_elements)
def test_messages_of_a_batch_are_those_of_the_long_road(elements: list[BatchMessage]) -> None:
    body = encode_batch(elements)
    results = gathered_batches(body)
    assert all(result == results[0] for result in results)
    marks = (b"DELAY\x01", b"TRAN_MSG\x01", b"INNER_MULTI_", b"TIMER_DEL")
    is_usual = not any(mark in one.properties for one in elements for mark in marks)
    if not elements or not is_usual:
        assert results[0] is None
        return
    leader = parts()
    fields = {**_usual, "m": "true", "j": "3", "f": "2", "g": "17", "h": "0"}
    header = {"code": 320, "extFields": fields, "opaque": 1}
    frame = frame_of(header, body, list(header), compact=True)
    before = len(leader.store.messages)
    leader.sends.send(ListConnection(), decode(frame))  # type: ignore[arg-type]
    leader.turn.end()
    messages, total = results[0]
    assert leader.store.messages[before:] == messages
    assert total == sum(92 + len(one.body) + len(one.properties) for one in elements)


@given(_elements, st.integers(0, 120), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_batches_are_read_alike(
    elements: list[BatchMessage], at: int, put: bytes, gone: int
) -> None:
    whole = encode_batch(elements)
    body = whole[:at] + put + whole[at + gone :]
    results = gathered_batches(body)
    assert all(result == results[0] for result in results)
    if results[0] is not None:
        read = [(one.flag, one.body, one.properties) for one in results[0][0]]
        assert read == [tuple(one) for one in decode_batch(body)]


@pytest.mark.parametrize(("count", "is_quick"), [(1, True), (128, True), (129, False)])
def test_send_with_too_many_keys_is_left_to_the_long_road(count: int, is_quick: bool) -> None:
    text = "TAGS\x01t\x02KEYS\x01" + " ".join(f"k{number}" for number in range(count))
    header = {"code": 310, "extFields": {**_usual, "i": text}, "flag": 0, "opaque": 1}
    assert check(frame_of(header, b"", list(header), compact=True)) is is_quick
    batch = encode_batch([BatchMessage(0, b"", text.encode())])
    for form in GATHER_FORMS:
        arguments = (batch, "T", 0, 0, 0, HOST, HOST, 0, 4_000_000)
        assert (form.gather_batch(*arguments) is not None) is is_quick


def test_usual_sends_of_a_chunk_are_quick() -> None:
    header = {
        "code": 310, "extFields": _usual, "flag": 0, "language": "JAVA", "opaque": 7,
        "serializeTypeCurrentRPC": "JSON", "version": 399,
    }  # fmt: skip
    usual = frame_of(header, b"body", list(header), compact=True)
    assert check(usual)
    for remark, is_quick in (("", True), ("x", False), (None, False)):
        names = ["remark", *header]
        assert check(frame_of({**header, "remark": remark}, b"", names, compact=True)) is is_quick
    other = frame_of({**header, "code": 11}, b"", list(header), compact=True)
    for form in FORMS:
        assert len(form.read_quick_sends([usual, usual, other, usual])) == 2


_pull_fields = {
    "consumerGroup": "g", "topic": "T", "queueId": "3", "queueOffset": "17", "maxMsgNums": "32",
    "sysFlag": "6", "commitOffset": "5", "suspendTimeoutMillis": "15000", "subVersion": "9",
}  # fmt: skip
_pull_changes = st.dictionaries(
    st.sampled_from([*_pull_fields, "subscription", "expressionType", "maxMsgBytes", "x", "bname"]),
    st.one_of(_numbers, st.sampled_from(["*", "TAG", "a || b", "\\", "\x01", ""]), st.text()),
    max_size=3,
)
_pull_members = st.one_of(
    st.fixed_dictionaries({"code": st.sampled_from([10, 11, 361, 310, "11"])}), _members
)


@st.composite
def pull_frames(draw: st.DrawFn) -> bytes:
    """Mostly quick pulls, one or two of whose parts are odd."""
    fields = dict(_pull_fields)
    header: dict[str, Any] = {
        "code": 11, "extFields": fields, "flag": draw(st.sampled_from([0, 0, 0, 1, 2])),
        "language": "JAVA", "opaque": draw(st.integers(0, 2**31 - 1)),
        "serializeTypeCurrentRPC": "JSON", "version": 399,
    }  # fmt: skip
    oddity = draw(st.integers(0, 7))
    if oddity == 0:
        fields.update(draw(_pull_changes))
    elif oddity == 1:
        header.update(draw(_pull_members))
    elif oddity == 2:
        fields.pop(draw(st.sampled_from(list(_pull_fields))))
    order = draw(st.permutations(list(header)))
    return frame_of(header, b"", order, compact=oddity != 3)


def check_pull(frame: bytes) -> bool:
    """Compares all forms and both roads; tells whether the frame is a quick pull."""
    results = [form.read_quick_pull(frame) for form in FORMS]
    assert all(result == results[0] for result in results)
    if results[0] is None:
        return False
    command = decode(frame)
    header = decode_pull_header(command)
    assert command.code in (11, 361)
    assert command.flag & 3 == 0
    texts = (
        header.consumer_group, header.topic, header.subscription or "",
        header.expression_type or "", str(header.sub_version), str(header.queue_id),
        str(header.sys_flag),
    )  # fmt: skip
    assert results[0] == (
        command.opaque,
        header.queue_offset,
        header.max_msg_nums,
        header.commit_offset,
        "\0".join(texts).encode(),
    )
    return True


@given(pull_frames())
def test_quick_pull_says_what_it_says_on_the_long_road(frame: bytes) -> None:
    check_pull(frame)
    assert not any(form.read_quick_sends([frame]) for form in FORMS)


@given(pull_frames(), st.integers(0, 400), st.binary(max_size=3), st.integers(0, 4))
def test_damaged_pulls_are_read_alike(frame: bytes, at: int, put: bytes, gone: int) -> None:
    check_pull(frame[:at] + put + frame[at + gone :])


@given(st.one_of(st.binary(max_size=60), frames()))
def test_what_is_no_pull_is_none(frame: bytes) -> None:
    assert not check_pull(frame)


def test_usual_pulls_are_quick() -> None:
    header = {"code": 11, "extFields": _pull_fields, "flag": 0, "language": "JAVA", "opaque": 7}
    order = list(header)
    assert check_pull(frame_of(header, b"", order, compact=True))
    assert check_pull(frame_of({**header, "code": 361}, b"", order, compact=True))
    more = {**_pull_fields, "subscription": "a || b", "expressionType": "TAG", "bname": "b"}
    assert check_pull(frame_of({**header, "extFields": more}, b"", order, compact=True))
    for name in _pull_fields:
        less = {key: value for key, value in _pull_fields.items() if key != name}
        assert not check_pull(frame_of({**header, "extFields": less}, b"", order, compact=True))
    escaped = {**_pull_fields, "subscription": "\u00fc"}
    assert not check_pull(frame_of({**header, "extFields": escaped}, b"", order, compact=True))
    assert not check_pull(frame_of(header, bytes(2000), order, compact=True))


@pytest.mark.parametrize("program", ["java-4.9.3-json", "java-5.3.3-json", "go"])
def test_recorded_pulls_are_quick(program: str) -> None:
    recorded = [
        path.read_bytes()
        for code in ("00011", "00361")
        for path in sorted((FRAMES / program).glob(f"{code}-request-*.bin"))
    ]
    assert recorded
    for frame in recorded:
        assert check_pull(frame[4:])
