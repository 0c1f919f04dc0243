"""fastjson's dialect: what is read, what is refused, and what is written."""

import json
import random

import msgspec
import pytest

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.lenient_json import DEPTH_MAX, DIALECT_BYTES_MAX, read, write


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1,1:-2}", {"0": 1, "1": -2}),
        ('{-1:"a"}', {"-1": "a"}),
        ("{name:true,$x_1:null}", {"name": True, "$x_1": None}),
        ('{{"b":1,"a":[2]} : 3}', {'{"b":1,"a":[2]}': 3}),
        ('{{"brokerName":"b","queueId":0,"topic":"t"}:{}}',)
        + ({'{"brokerName":"b","queueId":0,"topic":"t"}': {}},),
        (' { 0 : [ 1 , 2.5e1 , "x\\u00e9\\n" , { } , [ ] ] } ', {"0": [1, 25.0, "xé\n", {}, []]}),
        ("{{0:{1:2}}:{3:4}}", {"{0:{1:2}}": {"3": 4}}),
        ('{0:1,0:2,"@type":"java.lang.Object"}', {"0": 2, "@type": "java.lang.Object"}),
    ],
)
def test_dialect_is_read(text: str, value: object) -> None:
    assert read(text.encode()) == value


def test_standard_json_is_read_alike_by_both_readers() -> None:
    rng = random.Random(3)

    def some(depth: int) -> object:
        kind = rng.randrange(8 if depth < 4 else 6)
        if kind == 6:
            return {f"k{rng.randrange(9)}": some(depth + 1) for _ in range(rng.randrange(4))}
        if kind == 7:
            return [some(depth + 1) for _ in range(rng.randrange(4))]
        plain: list[object] = [
            None,
            True,
            rng.randrange(-(2**63), 2**63),
            rng.random(),
            'é\n\\"',
            0,
        ]
        return plain[kind]

    for _ in range(300):
        value = some(0)
        text = json.dumps(value)
        # A number as a key sends the same document through the other reader.
        assert read(b"{0:%b}" % text.encode()) == {"0": value}
        assert read(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{0",
        "{0:",
        "{0:1",
        "{0:1,",
        "{0:1,}",
        "{0:1]",
        "{0:1}}",
        "{0:1} 2",
        "[{0:1}",
        "[{0:1},]",
        "{0 1}",
        "{,}",
        "{:1}",
        "{0:01}",
        "{0:-}",
        "{0:1.}",
        "{0:.5}",
        "{0:NaN}",
        "{0:Infinity}",
        "{0:1e999}",
        "{0:undefined}",
        "{0:'x'}",
        '{0:"x}',
        '{0:"x\\"}',
        '{0:"\\q"}',
        '{0:"\\ud800 "}',
        '{0:"a\nb"}',
        "{0:" + "9" * 21 + "}",
        "{0:0." + "1" * 60 + "}",
        "{" + "9" * 21 + ":0}",
        "{٣:0}",
        "{0:{1:" * 400,
        "{" * 100_000,
        "{0:" + "[" * 100_000,
    ],
)
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        read(text.encode())


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        read(b'{0:"\xff"}')


def test_depth_is_limited() -> None:
    def nested(depth: int) -> bytes:
        return b"{0:" + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    assert read(nested(DEPTH_MAX + 1))
    with pytest.raises(RemoteProtocolError, match="depth"):
        read(nested(DEPTH_MAX + 2))


def test_size_of_the_dialect_is_limited() -> None:
    with pytest.raises(RemoteProtocolError, match="size"):
        read(b"{0:1}" + b" " * DIALECT_BYTES_MAX)


class Queue(msgspec.Struct, frozen=True, rename="camel"):
    topic: str
    queue_id: int
    note: str | None = None


def test_members_are_sorted_and_nulls_left_out() -> None:
    assert write(Queue("t", 0)) == b'{"queueId":0,"topic":"t"}'
    assert write(Queue("t", 0, "n")) == b'{"note":"n","queueId":0,"topic":"t"}'


def test_keys_that_are_no_text_are_written_in_either_dialect() -> None:
    value = {Queue("t", 0): {1: 2.5}, "x": [frozenset({3, 1, 2}), (), {}, True, None]}
    assert write(value) == (b'{{"queueId":0,"topic":"t"}:{1:2.5},"x":[[1,2,3],[],{},true,null]}')
    standard = write(value, has_quoted_keys=True)
    assert json.loads(standard) == {
        '{"queueId":0,"topic":"t"}': {"1": 2.5},
        "x": [[1, 2, 3], [], {}, True, None],
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, object()])
def test_what_json_cannot_carry_is_our_error(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        write(value)
