"""Header: what all typed headers share, the way from ext fields to values and back.

A header class lists the fields of one request or response in Python names; the name on the wire is
the same in camelCase unless the field gives another. An absent value is None, or 0 and False where
Java has a primitive.

A number is spelled in one way only, the one in which every client writes it: a minus if need be,
and decimal digits without a leading zero. Java and Python read more ("+7", "007", "7.0", "7e0",
" 7"), and not the same; whoever judges a request by its text and whoever carries it out by its
number must not come to two of them. What guards and processors read comes from here alone.

The quick way is one call into msgspec, and a look whether each number that came out is spelled as
it stood there. What does not pass is read again field by field, by the rules of Java's
decodeCommandCustomHeader for all but numbers, either to accept what only Java accepts or to name
the field that is wrong.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Final, Self, TypeVar

import msgspec
import msgspec.inspect

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
# A 64-bit number has at most 19 digits and a sign.
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)

Int32 = Annotated[int, msgspec.Meta(ge=_INT32_MIN, le=_INT32_MAX)]
Int64 = Annotated[int, msgspec.Meta(ge=_INT64_MIN, le=_INT64_MAX)]

_convert = msgspec.convert


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The ext fields of one kind of command, as values."""

    # Names on the wire that are read as well, by Python name; for fields that were renamed between
    # releases.
    other_keys: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> Self:
        """Reads the fields of this header; fields of other names are ignored.

        Raises:
            RemoteProtocolError: a required field is missing, a number is none or out of its range.
        """
        try:
            if not cls.other_keys:
                header = _convert(ext_fields, cls, strict=False)
                if _is_spelled_so(header, ext_fields):
                    return header
        except msgspec.ValidationError:
            pass
        return _read_slowly(cls, ext_fields)

    def to_ext_fields(self) -> dict[str, str]:
        """Returns the fields by their names on the wire; fields that are None are left out.

        Raises:
            LocalProtocolError: a number is out of the range of its field.
        """
        fields: dict[str, str] = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if value is None:
                continue
            if value is True:
                fields[key] = "true"
            elif value is False:
                fields[key] = "false"
            elif isinstance(value, int):
                if not _INT64_MIN <= value <= _INT64_MAX:
                    raise LocalProtocolError(key, value, _INT64_MAX)
                fields[key] = str(int(value))
            else:
                fields[key] = str(value)
        return fields


_H = TypeVar("_H", bound=Header)


@dataclass(slots=True, frozen=True, kw_only=True)
class _Field:
    """What the slow way has to know of one field."""

    name: str
    keys: tuple[str, ...]
    is_required: bool
    is_boolean: bool
    # Range of a number; None when the field is text or boolean.
    number_range: tuple[int, int] | None


# Keys on the wire and Python names of the numbers of each class that was read.
_numbers: dict[type[Header], tuple[tuple[str, str], ...]] = {}


@lru_cache(maxsize=256)
def _fields_of(header_class: type[Header]) -> tuple[_Field, ...]:
    info = msgspec.inspect.type_info(header_class)
    assert isinstance(info, msgspec.inspect.StructType)
    fields = []
    for field in info.fields:
        kinds = (
            field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        )
        number_range = None
        for kind in kinds:
            if isinstance(kind, msgspec.inspect.IntType):
                assert kind.ge is not None
                assert kind.le is not None
                number_range = (kind.ge, kind.le)
        other = header_class.other_keys.get(field.name)
        fields.append(
            _Field(
                name=field.name,
                keys=(field.encode_name,) if other is None else (field.encode_name, other),
                is_required=field.required,
                is_boolean=any(isinstance(kind, msgspec.inspect.BoolType) for kind in kinds),
                number_range=number_range,
            )
        )
    return tuple(fields)


def _read_slowly(header_class: type[_H], ext_fields: Mapping[str, str]) -> _H:
    """Reads each field by Java's rules and names the first one that is wrong."""
    values: dict[str, object] = {}
    for field in _fields_of(header_class):
        text = next((ext_fields[key] for key in field.keys if key in ext_fields), None)
        if text is None:
            if field.is_required:
                raise RemoteProtocolError(field.keys[0], None)
        elif field.is_boolean:
            values[field.name] = text.lower() in ("true", "1")
        elif field.number_range is not None:
            values[field.name] = read_number(field.keys[0], text, *field.number_range)
        else:
            values[field.name] = text
    return header_class(**values)


def numbers_of(header_class: type[Header]) -> tuple[tuple[str, str], ...]:
    """Returns key on the wire and Python name of each number in headers of a class."""
    numbers = _numbers[header_class] = tuple(
        (field.keys[0], field.name)
        for field in _fields_of(header_class)
        if field.number_range is not None
    )
    return numbers


def read_number(field: str, text: str, low: int, high: int) -> int:
    """Reads a number of 64 bits at most as it stands on the wire.

    Args:
        field: its name on the wire, for the error.
        text: what stands there.
        low, high: what it may be.

    Raises:
        RemoteProtocolError: it is spelled in another way, or is out of its range.
    """
    if _NUMBER.fullmatch(text) is None:
        wanted = f"a whole number of {low} to {high} in plain decimal digits"
        raise RemoteProtocolError(field, text, wanted)
    number = int(text)
    if not low <= number <= high:
        raise RemoteProtocolError(field, number, f"{low} to {high}")
    return number


def _is_spelled_so(header: Header, ext_fields: Mapping[str, str]) -> bool:
    """Tells whether each number of a header is spelled as `read_number` wants it."""
    header_class = type(header)
    numbers = _numbers.get(header_class)
    if numbers is None:
        numbers = numbers_of(header_class)
    for key, name in numbers:
        text = ext_fields.get(key)
        # The text of a number is the one text that is taken for it.
        if text is not None and str(getattr(header, name)) != text:
            return False
    return True
