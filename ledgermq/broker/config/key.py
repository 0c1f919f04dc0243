"""Key: one row of the table of configuration keys, and short ways to write one."""

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """How the text of a value is read."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"


class Key(NamedTuple):
    """One configuration key.

    Attributes:
        name: the key in the file, as upstream spells it where upstream has it.
        field: the field of BrokerConfig.
        kind: how the text is read.
        default: text used when the key is absent; `None` means that `broker_config.py`
            derives the value.
        unit: unit of the value, or an empty string.
        low: smallest allowed number, `None` for text.
        high: largest allowed number, `None` for text.
        choices: allowed texts; empty means any.
        doc: what the key does, one sentence.
    """

    name: str
    field: str
    kind: Kind
    default: str | None
    unit: str
    low: int | None
    high: int | None
    choices: tuple[str, ...]
    doc: str


I32_MAX: Final = 2**31 - 1
I64_MAX: Final = 2**63 - 1
GIB: Final = 1 << 30


def integer(name: str, field: str, default: int, unit: str, low: int, high: int, doc: str) -> Key:
    return Key(name, field, Kind.INTEGER, str(default), unit, low, high, (), doc)


def switch(name: str, field: str, default: bool, doc: str) -> Key:
    text = "true" if default else "false"
    return Key(name, field, Kind.BOOLEAN, text, "", None, None, ("true", "false"), doc)


def text_key(
    name: str, field: str, default: str | None, doc: str, choices: tuple[str, ...] = ()
) -> Key:
    return Key(name, field, Kind.TEXT, default, "", None, None, choices, doc)
