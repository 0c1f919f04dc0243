"""Options of a source as a table: each name with its default, how it is read and what is allowed.

Spark gives options as texts whose names match in any case. They are read once, into plain values;
an unknown name or a value that is not allowed raises OptionError, which lists what is.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import OptionError
from ledgermq.spark.offsets import read_offsets

# Spark's own options, which it hands on as well.
_OF_SPARK: Final = frozenset({"checkpointlocation"})


class Option(NamedTuple):
    """One option."""

    # Makes a value of the text; ValueError says that it is not allowed.
    read: Callable[[str], Any]
    # What is allowed, as a user would write it.
    allowed: str
    # The value when it is not given.
    default: Any = None
    is_required: bool = False


def read_table(given: Mapping[str, str], table: Mapping[str, Option]) -> dict[str, Any]:
    """Returns the value of each option of a table, by its name there.

    Raises:
        OptionError: an option is unknown or missing, or its value is not allowed.
    """
    names = {name.lower(): name for name in table}
    values = {name: option.default for name, option in table.items()}
    for key, text in given.items():
        if key.lower() in _OF_SPARK:
            continue
        name = names.get(key.lower())
        if name is None:
            # Its value may be a secret whose option is misspelt; errors stand in logs.
            raise OptionError(key, "...", f"no such option; known are {', '.join(table)}")
        try:
            values[name] = table[name].read(text.strip())
        except ValueError as error:
            raise OptionError(name, text, table[name].allowed) from error
    for name, option in table.items():
        if option.is_required and values[name] is None:
            raise OptionError(name, None, option.allowed)
    return values


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Returns a reader of numbers from `low` to `high`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not low <= int(text) <= high:
            raise ValueError(text)
        return int(text)

    return read


def truth(text: str) -> bool:
    """Reads true or false, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def word(text: str) -> str:
    """Reads a text that is not empty."""
    if not text:
        raise ValueError(text)
    return text


def write_id(text: str) -> str:
    """Reads the id of a write, which stands in the names of locks."""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", text):
        raise ValueError(text)
    return text


def words(text: str) -> tuple[str, ...]:
    """Reads a comma list of texts, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError(text)
    return found


def pattern(text: str) -> str:
    """Reads a regular expression."""
    try:
        re.compile(word(text))
    except re.error as error:
        raise ValueError(text) from error
    return text


def addresses(text: str) -> tuple[str, ...]:
    """Reads ``host:port;host:port``."""
    found = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65_536:
            raise ValueError(text)
    if not found:
        raise ValueError(text)
    return found


def moment_ms(text: str) -> int:
    """Reads a time: ms since 1970, or ISO 8601, which is UTC when it names no zone."""
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def moments_ms(text: str) -> int | dict[MessageQueue, int]:
    """Reads a time, or a document with one for each of some queues, in ms since 1970."""
    if not text.startswith("{"):
        return moment_ms(text)
    found = read_offsets(text)
    assert isinstance(found, dict), "a text that begins with a brace is a document or an error"
    return found


MOMENT_ALLOWED: Final = "milliseconds since 1970, or ISO 8601 such as 2026-01-31T12:00:00Z"
