"""Bodies on a terminal and as JSON."""

from __future__ import annotations

import pytest

from ledgermq.cli.bodies import BODY_BYTES_SHOWN_MAX, cell_of, fields_of, shown, text_of


@pytest.mark.parametrize(
    ("body", "cell"),
    [
        (b"", ""),
        (b"hello", "hello"),
        ("zwölf €".encode(), "zwölf €"),
        (b"two\nlines", "two\\nlines"),
        (b"x" * 61, "x" * 60 + "..."),
        # A character that is cut at the end of what is looked at does not make it binary.
        (("€" * 300).encode(), "€" * 60 + "..."),
        (b"\x00\x01\x02\xff", "4 bytes: 000102ff"),
        (bytes(range(256)), "256 bytes: " + bytes(range(20)).hex() + "..."),
    ],
)
def test_cell(body: bytes, cell: str) -> None:
    assert cell_of(body) == cell


def test_what_is_shown_does_nothing_to_a_terminal() -> None:
    said = shown(b"red: \x1b[31m title: \x1b]0;x\x07 and a lot of text that is no control at all")
    assert "\x1b" not in said and "\x07" not in said and "\\x1b[31m" in said
    assert shown(b"a\r\nb\tc") == "a\nb    c"
    rows = shown(b"\x89PNG\r\n\x1a\n" + bytes(12)).splitlines()
    assert rows[0] == "00000000  89 50 4e 47 0d 0a 1a 0a 00 00 00 00 00 00 00 00  .PNG............"
    assert rows[1].startswith("00000010  00 00 00 00")


def test_a_large_body_is_cut_and_says_so() -> None:
    said = shown(b"\xff" * (4 * 1024 * 1024))
    assert len(said) < 30_000
    assert said.endswith(f"({4 * 1024 * 1024 - BODY_BYTES_SHOWN_MAX} bytes more)")
    text = shown("€".encode() * BODY_BYTES_SHOWN_MAX)
    assert text.startswith("€€€") and "bytes more" in text


def test_json_has_the_text_or_the_bytes() -> None:
    assert fields_of("zwölf".encode()) == {"body": "zwölf"}
    assert fields_of(b"\xff\x00") == {"body_base64": "/wA="}
    assert text_of(b"\x00" * 100) is None
