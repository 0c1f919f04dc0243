"""Bodies that are looked into: bombs are not, and what is shown stays as small as it was."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from typing import Any, cast

import pytest

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console import messages
from ledgermq.console.bodies import Bodies
from ledgermq.console.messages import shown_body
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


def has(message: ReceivedMessage, text: str) -> bool:
    return asyncio.run(Bodies().has_text("", message, text))


def test_a_body_is_searched_that_inflates_to_what_a_message_may_have() -> None:
    assert has(packed(b"x" * (4 * _MIB - 4) + b"word"), "word")
    assert not has(packed(b"word" + b"x" * 4 * _MIB), "word")
    assert not has(cast(Any, _Message(b"no zlib", sysflag.COMPRESSED)), "word")
    assert has(cast(Any, _Message(b"a word", 0)), "word")


def test_one_body_is_inflated_at_a_time_and_no_request_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_work, overlapping, threads = [0], [], set()
    decompress = messages.decompress

    def inflate(body: bytes, sys_flag: int, bytes_max: int) -> bytes:
        at_work.append(0)
        overlapping.append(len(at_work) > 2)
        threads.add(threading.get_ident())
        try:
            return decompress(body, sys_flag, bytes_max)
        finally:
            at_work.pop()

    monkeypatch.setattr(messages, "decompress", inflate)

    async def look() -> None:
        message, bodies = packed(b"x" * 4 * _MIB), Bodies()
        looks = [bodies.has_text(owner, message, "word") for owner in "ab" * 10]
        looks += [bodies.read(owner, lambda one: bool(shown_body(one)), message) for owner in "ab"]
        # Who hangs up does not make room for one more before its own has ended.
        tasks = [asyncio.create_task(look) for look in looks]
        for task in tasks[::2]:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(look())
    assert len(overlapping) >= len("ab") * 5 and not any(overlapping)
    assert threading.get_ident() not in threads


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


@pytest.mark.parametrize("between", ['"]",', '"\\\\\\"]",', '"}",'])
def test_brackets_in_texts_do_not_hide_how_deep_json_is(between: str) -> None:
    text = f"[{between}" * 900 + "1" + "]" * 900
    shown = shown_body(cast(Any, _Message(text.encode(), 0)))
    assert (shown.kind, shown.text) == ("json", text)


def test_json_of_many_values_is_looked_at_without_making_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = 0
    decode = messages.msgspec.json.decode

    def count(data: bytes, **options: Any) -> Any:
        nonlocal made
        value = decode(data, **options)
        made += len(value) if isinstance(value, list) else 0
        return value

    monkeypatch.setattr(messages.msgspec.json, "decode", count)
    text = "[" + ",".join(["[]"] * 80_000) + "]"
    shown = shown_body(cast(Any, _Message(text.encode(), 0)))
    assert (shown.kind, made) == ("json", 0)
