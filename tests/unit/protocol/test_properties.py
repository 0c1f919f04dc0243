"""The property block: as Java parses it, and the quick look that dispatch takes."""

import random

import pytest

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.protocol.properties import (
    decode_properties,
    find_property,
    format_properties,
    parse_properties,
)

PARSED = {
    "": {},
    "a\x01b": {"a": "b"},
    "a\x01b\x02": {"a": "b"},
    "a\x01b\x02c\x01d": {"a": "b", "c": "d"},
    "a\x01b\x02\x02c\x01d\x02": {"a": "b", "c": "d"},
    "a\x01b\x01c": {"a": "b\x01c"},
    "a\x01\x02b": {},
    "\x01b\x02c": {},
    "a\x01b\x02a\x01c": {"a": "c"},
    "a\x01b\x02a\x01": {"a": "b"},
    "a\x01b\x02a\x01\x02c\x01d\x02a\x01": {"a": "b", "c": "d"},
    "a\x01\x02a\x01b\x02a\x01c\x02a\x01\x02a\x01": {"a": "c"},
    "x\x01\x01a\x01b\x02a\x01\x02ba\x01c": {"x": "\x01a\x01b", "ba": "c"},
    "标签\x01值": {"标签": "值"},
}


@pytest.mark.parametrize("text", PARSED)
def test_text_is_parsed_as_java_does(text):
    assert parse_properties(text) == PARSED[text]
    assert decode_properties(text.encode()) == PARSED[text]


@pytest.mark.parametrize("text", PARSED)
@pytest.mark.parametrize("name", ["a", "c", "标签", "missing"])
def test_quick_look_agrees_with_the_parser(text, name):
    found = find_property(text.encode(), name.encode())
    assert found.decode() == PARSED[text].get(name, "")


def test_name_inside_a_value_or_behind_another_name_is_not_found():
    assert find_property(b"X\x01TAGS\x01no\x02MYTAGS\x01no", b"TAGS") == b""


class Looked(bytes):
    """Counts how often somebody looks through it."""

    count = 0

    def rfind(self, *arguments):
        self.count += 1
        return super().rfind(*arguments)


def test_thousands_of_empty_values_are_looked_through_once():
    """Each was a look of its own: a batch with them took most of a second."""
    for first, found in ((b"", b""), (b"KEYS\x01k", b"k")):
        text = Looked(first + b"\x02KEYS\x01" * 5400)
        assert find_property(text, b"KEYS") == found
        assert text.count == 1


def test_quick_look_agrees_with_the_parser_whatever_the_text_is():
    rng = random.Random(7)
    pieces = ["\x02", "\x01", "a", "a\x01", "\x02a\x01", "\x02a\x01v", "\n", "ba\x01", "键"]
    for _ in range(20_000):
        text = "".join(rng.choices(pieces, k=rng.randrange(12)))
        assert find_property(text.encode(), b"a").decode() == parse_properties(text).get("a", "")


def test_format_leaves_out_the_last_separator():
    assert format_properties({"a": "b", "c": "d"}) == "a\x01b\x02c\x01d"
    assert format_properties({}) == ""


@pytest.mark.parametrize(
    "bad", [{"": "x"}, {"a": ""}, {"a\x01": "b"}, {"a": "b\x02"}, {"\x02": "b"}]
)
def test_what_could_not_be_read_back_is_not_formatted(bad):
    with pytest.raises(LocalProtocolError):
        format_properties(bad)


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(RemoteProtocolError):
        decode_properties(b"a\x01\xff")
