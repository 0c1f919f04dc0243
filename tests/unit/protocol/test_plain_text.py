"""Text of others does nothing in a log or on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.protocol.plain_text import escaped, escaped_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("Müller 注文", "Müller 注文"),
        ("a\nb\r\n", r"a\nb\r\n"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u2028\u202e\ud800", r"\u2028\u202e\ud800"),
        ("", ""),
    ],
)
def test_what_acts_is_shown_as_its_number(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text())
def test_nothing_of_a_text_acts(text: str) -> None:
    shown = escaped(text)
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    assert escaped_lines(text).count("\n") == text.count("\n")
