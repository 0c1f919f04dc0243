"""Values of SQL92 filters compared as Java compares them.

A property is text. Beside a number it is read as a number of that kind, beside a truth as a truth;
two properties are texts for `=` and doubles for an order. An integer of the expression that fits in
32 bits is an Integer, so a property beside it that needs more is not read, as in upstream. What
cannot be read ends the evaluation.
Source: `ComparisonExpression.java` of 4.9.3, `Integer.parseInt`, `Double.parseDouble`.
"""

import re
from math import copysign, inf, isnan, nan
from typing import Final

from ledgermq.broker.selectors.sql_nodes import Value

_INTEGER: Final = re.compile(r"[+-]?\d+")
# A run of digits has one way to be read: a message may have thirty thousand of them.
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?P<word>NaN|Infinity)|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)"
    r"[pP][+-]?[0-9]+)[fFdD]?|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_BLANKS: Final = "".join(map(chr, range(33)))
_I32_MAX: Final = 2**31 - 1
_I64_MAX: Final = 2**63 - 1
# More digits than any double or long needs; Python refuses to read 4,300.
_NUMBER_CHARS_MAX: Final = 1000


class SqlValueError(Exception):
    """Two values cannot be compared: the message does not match."""


def read_integer(text: str, beside: int) -> int:
    """Returns a text as an integer of the size of the one beside it: i32 or i64.

    Raises:
        SqlValueError: it is none.
    """
    if len(text) > _NUMBER_CHARS_MAX or _INTEGER.fullmatch(text) is None:
        raise SqlValueError(f"{text[:40]!r} is no integer")
    number = int(text)
    # The least i32 never is one: the sign is taken from a greater number behind it.
    most = _I32_MAX if -_I32_MAX <= beside <= _I32_MAX else _I64_MAX
    if not -most - 1 <= number <= most:
        raise SqlValueError(f"{text[:40]!r} is too large beside {beside}")
    return number


def read_double(text: str) -> float:
    """Returns a text as a double.

    Raises:
        SqlValueError: it is none.
    """
    text = text.strip(_BLANKS)
    match = _DOUBLE.fullmatch(text) if len(text) <= _NUMBER_CHARS_MAX else None
    if match is None:
        raise SqlValueError(f"{text[:40]!r} is no number")
    if match["word"] is not None:
        number = nan if match["word"] == "NaN" else inf
        return -number if text.startswith("-") else number
    digits = text.rstrip("fFdD")
    if match["hex"] is None:
        return float(digits)
    try:
        return float.fromhex(digits)
    except OverflowError:
        return -inf if text.startswith("-") else inf


def read_truth(text: str) -> bool:
    """Returns whether a text is the word true."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Returns -1, 0 or 1; -0.0 is less than 0.0, and NaN is equal to itself and above all."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    # Zeros, or a NaN at least on one side.
    left_rank = 2.0 if isnan(left) else copysign(1.0, left) if left == 0.0 else 0.0
    right_rank = 2.0 if isnan(right) else copysign(1.0, right) if right == 0.0 else 0.0
    return (left_rank > right_rank) - (left_rank < right_rank)


def compare_numbers(left: float, right: float) -> int:
    """Returns -1, 0 or 1 of two numbers; as doubles unless both are integers."""
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return compare_doubles(float(left), float(right))


def are_equal(left: Value, right: Value) -> bool:
    """Returns whether two values that are not null are equal.

    Raises:
        SqlValueError: a text cannot be read as the other value's kind.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return left == right
        if isinstance(right, bool):
            return read_truth(left) is right
        return compare_numbers(_read_like(left, right), _number(right)) == 0
    if isinstance(left, bool):
        if isinstance(right, str):
            raise SqlValueError("a truth on the left cannot be compared with a text")
        return left is right
    if isinstance(right, bool):
        return False
    if isinstance(right, str):
        return compare_numbers(_number(left), _read_like(right, left)) == 0
    return compare_numbers(_number(left), _number(right)) == 0


def order_of(left: Value, right: Value) -> int:
    """Returns -1, 0 or 1 of two numbers or texts that are not null.

    Raises:
        SqlValueError: a text cannot be read as a number.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return compare_doubles(read_double(left), read_double(right))
        return compare_numbers(_read_like(left, right), _number(right))
    if isinstance(right, str):
        return compare_numbers(_number(left), _read_like(right, left))
    return compare_numbers(_number(left), _number(right))


def _read_like(text: str, other: Value) -> float:
    if isinstance(other, float):
        return read_double(text)
    assert isinstance(other, int)
    return read_integer(text, other)


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value
