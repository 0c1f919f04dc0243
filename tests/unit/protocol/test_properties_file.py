"""Properties files as `java.util.Properties` reads them; texts are those of its documentation."""

import pytest

from ledgermq.protocol.properties_file import parse_properties, parse_properties_file


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1\nb: 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("Truth = Beauty\r\nTruth:Beauty\rTruth\t\t\t:Beauty", {"Truth": "Beauty"}),
        ("fruits   apple, \\\n    pear, \\\n  mango", {"fruits": "apple, pear, mango"}),
        ("# a=1\n! b=2\n\n   # c=3\nd=4", {"d": "4"}),
        ("cheeses\n", {"cheeses": ""}),
        ("a\\=b=c\\:d\nx\\ y=z", {"a=b": "c:d", "x y": "z"}),
        ("path=c:\\\\store\ntab=a\\tb\nodd=\\q", {"path": "c:\\store", "tab": "a\tb", "odd": "q"}),
        ("a=1\na=2", {"a": "2"}),
        ("\ufeffa=1", {"a": "1"}),
        ("last=line \\", {"last": "line"}),
        # Ends of lines for Python, characters like any other for Java.
        ("a=1\x0bb=2\x85c=3\u2028d=4", {"a": "1\x0bb=2\x85c=3\u2028d=4"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"brokerName=caf\\u00e9\n", "caf\u00e9"),
        (b"brokerName=\\u4E2D\\u6587\n", "\u4e2d\u6587"),
        (b"brokerName=caf\xe9\n", "caf\u00e9"),
        (b"brokerName=caf\xc3\xa9\n", "caf\u00e9"),
        # ISO-8859-1, where 0x85 is a control character and no end of a line.
        (b"brokerName=a\x85b\xff\n", "a\x85b\xff"),
    ],
)
def test_file_is_iso_8859_1_with_escapes_or_utf_8(data: bytes, name: str) -> None:
    assert parse_properties_file(data) == {"brokerName": name}


@pytest.mark.parametrize("digits", ["12", "12g4", " 123", "+123", ""])
def test_escape_without_four_digits_is_refused(digits: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties(f"a=\\u{digits}")
