"""Bodies that are looked into: bombs are not, and what is shown stays as small as it was."""

from __future__ import annotations

import json
import zlib
from typing import Any, cast

import pytest

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.messages import has_text, shown_body
from ledgermq.protocol import sysflag

_MIB = 1 << 20


class _Record:
    def __init__(self, body: bytes, sys_flag: int) -> None:
        self.body, self.sys_flag = body, sys_flag


class _Message:
    def __init__(self, body: bytes, sys_flag: int) -> None:
        self.record = _Record(body, sys_flag)


def packed(plain: bytes) -> ReceivedMessage:
    return cast(Any, _Message(zlib.compress(plain), sysflag.COMPRESSED))


def test_a_body_is_searched_that_inflates_to_what_a_message_may_have() -> None:
    assert has_text(packed(b"x" * (4 * _MIB - 4) + b"word"), "word")
    assert not has_text(packed(b"word" + b"x" * 4 * _MIB), "word")
    assert not has_text(cast(Any, _Message(b"no zlib", sysflag.COMPRESSED)), "word")


def test_a_bomb_is_shown_as_it_was_stored() -> None:
    shown = shown_body(packed(b" " * 5 * _MIB))
    assert shown.kind == "broken" and "4194304" in shown.reason
    assert shown.bytes < 10_000


@pytest.mark.parametrize(("depth", "is_indented"), [(30, True), (200, False)])
def test_json_is_indented_that_is_not_nested_deeply(depth: int, is_indented: bool) -> None:
    text = "[" * depth + ",".join("1" * 200) + "]" * depth
    shown = shown_body(cast(Any, _Message(text.encode(), 0)))
    assert shown.kind == "json" and shown.text is not None
    assert json.loads(shown.text) == json.loads(text)
    assert ("\n" in shown.text) == is_indented
    assert len(shown.text) < 50_000
