"""Java's string hash: published values, and the quick forms against the plain one."""

import random

import pytest

from ledgermq.protocol.java_hash import (
    hash_unique_ids,
    java_string_hash,
    joined_hash,
    unsigned_hash,
)


def obvious_hash(text: str) -> int:
    wide = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(wide), 2):
        value = (31 * value + int.from_bytes(wide[i : i + 2], "big")) & 0xFFFFFFFF
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("d", 100),
        ("中文", 646394),
        ("TopicTest#K0", 2745031),
        ("TopicTest#AC1400010001", -1634629815),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_is_that_of_java(text, expected):
    assert java_string_hash(text) == expected


def test_hash_agrees_with_the_obvious_loop():
    rng = random.Random(7)
    for length in [*range(70), 255, 256, 257, 600]:
        for alphabet in ("abcXYZ019_", "aé中\U0001f600"):
            text = "".join(rng.choices(alphabet, k=length))
            assert java_string_hash(text) & 0xFFFFFFFF == obvious_hash(text)


def test_hash_of_a_joined_text_follows_from_its_parts():
    for key in ("", "K0", "中文", "x" * 300):
        prefix_hash = unsigned_hash(b"TopicTest#")
        assert joined_hash(prefix_hash, key.encode()) == obvious_hash("TopicTest#" + key)


def test_key_that_is_not_utf8_is_hashed_as_java_would_read_it():
    assert joined_hash(0, b"a\xff") == obvious_hash("a\ufffd")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 130])
def test_unique_ids_hashed_together_equal_those_hashed_alone(count):
    rng = random.Random(count)
    keys = [bytes(rng.choices(range(128), k=32)) for _ in range(count)]
    assert hash_unique_ids(keys) == [unsigned_hash(key) for key in keys]
