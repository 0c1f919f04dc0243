"""The options of typed values: which format, where its schema is, and what a bad body does."""

import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ledgermq.spark.errors import OptionError
from ledgermq.spark.option_table import Option, whole_number, word
from ledgermq.spark.paths import local_path

BYTES: Final = "bytes"
TEXT: Final = "text"
JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
FORMATS: Final = (BYTES, TEXT, JSON, AVRO, PROTOBUF)
# These cannot be read without a schema.
_WITH_SCHEMA: Final = frozenset({AVRO, PROTOBUF})
_BODY_BYTES_DEFAULT: Final = 4 * 1024 * 1024
# As much as a body may have when it is decompressed.
_BODY_BYTES_MAX: Final = 256 * 1024 * 1024


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(text)
        return text.lower()

    return read


def _url(text: str) -> str:
    """Reads the address of a registry, without a slash at its end."""
    if "@" in text:
        # Not repeated: errors stand in logs.
        host = text.rpartition("@")[2]
        allowed = "an address without an account; give value.schema.registry.user and .password"
        raise OptionError("value.schema.registry", f"...@{host}", allowed)
    parts = urllib.parse.urlsplit(text)
    # `port` raises ValueError when it is none.
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(text)
    if parts.query or parts.fragment:
        raise ValueError(text)
    if any(ord(char) <= ord(" ") or ord(char) > ord("~") for char in text):
        raise ValueError(text)
    return text.rstrip("/")


WRITE_VALUE_OPTIONS: Final[Mapping[str, Option]] = {
    "value.format": Option(_one_of(*FORMATS), ", ".join(FORMATS), BYTES),
    "value.schema.file": Option(word, "the path of a schema, on the driver"),
    "value.schema.registry": Option(
        _url, "http://host:port or https://..., without an account, a query or a fragment"
    ),
    "value.schema.registry.user": Option(word, "the name of an account of the registry"),
    "value.schema.registry.password": Option(word, "its password"),
    "value.schema.subject": Option(word, "a subject of the registry"),
    "value.schema.message": Option(word, "the full name of a Protobuf message"),
}
READ_VALUE_OPTIONS: Final[Mapping[str, Option]] = {
    **WRITE_VALUE_OPTIONS,
    "value.errors": Option(_one_of("column", "fail"), "column or fail", "column"),
    "value.maxBytes": Option(
        whole_number(1, _BODY_BYTES_MAX), f"1 to {_BODY_BYTES_MAX}", _BODY_BYTES_DEFAULT
    ),
}


@dataclass(slots=True, frozen=True, kw_only=True)
class RegistryAddress:
    """A registry of schemas, and who asks it."""

    url: str
    # "": nobody, no account is named.
    user: str = ""
    # Never shown.
    password: str = field(default="", repr=False)


@dataclass(slots=True, frozen=True, kw_only=True)
class ValueOptions:
    """What a read or write is told of the values in bodies."""

    # One of FORMATS.
    format: str = BYTES
    # Absolute; "" when there is none.
    schema_file: str = ""
    # None: bodies have no head that names a schema.
    registry: RegistryAddress | None = None
    # "" when the file gives the columns.
    subject: str = ""
    # "": the first one of the schema.
    message: str = ""
    # Whether a body that is no value ends the read.
    fails: bool = False
    # A larger body is no value.
    body_bytes_max: int = _BODY_BYTES_DEFAULT

    @property
    def is_typed(self) -> bool:
        """Whether there is a column of values."""
        return self.format != BYTES


def value_options(
    values: Mapping[str, Any], topics: tuple[str, ...], *, is_write: bool
) -> ValueOptions:
    """Returns what the options of a table say of values.

    Args:
        values: of all options of the read or write.
        topics: those that it names; the only one gives the default subject.
        is_write: whether rows are sent.

    Raises:
        OptionError: an option needs another one, or contradicts it.
    """
    value_format: str = values["value.format"]
    given = [name for name in READ_VALUE_OPTIONS if values.get(name) is not None]
    file, url = values["value.schema.file"], values["value.schema.registry"]
    if value_format in (BYTES, TEXT):
        if any(name.startswith("value.schema.") for name in given):
            raise OptionError("value.format", value_format, "json, avro or protobuf with a schema")
    elif value_format in _WITH_SCHEMA and file is None and url is None:
        allowed = f"a path, or value.schema.registry: {value_format} is read by a schema"
        raise OptionError("value.schema.file", None, allowed)
    if is_write and file is not None and url is not None:
        allowed = "value.schema.file or value.schema.registry for a write, not both"
        raise OptionError("value.schema.file", file, allowed)
    message = values["value.schema.message"]
    if message is not None and value_format != PROTOBUF:
        raise OptionError("value.schema.message", message, "only with value.format=protobuf")
    return ValueOptions(
        format=value_format,
        schema_file=str(local_path("value.schema.file", file)) if file else "",
        registry=_registry(values),
        subject=_subject(values, topics),
        message=message or "",
        fails=values.get("value.errors") == "fail",
        body_bytes_max=values.get("value.maxBytes", _BODY_BYTES_DEFAULT),
    )


def _registry(values: Mapping[str, Any]) -> RegistryAddress | None:
    url = values["value.schema.registry"]
    user = values["value.schema.registry.user"]
    password = values["value.schema.registry.password"]
    if (user is None) != (password is None):
        missing = "user" if user is None else "password"
        allowed = "user and password of the registry together, or neither"
        raise OptionError(f"value.schema.registry.{missing}", None, allowed)
    if url is None:
        for name in ("value.schema.registry.user", "value.schema.subject"):
            if values[name] is not None:
                raise OptionError(name, values[name], "only with value.schema.registry")
        return None
    if user is not None and ":" in user:
        raise OptionError("value.schema.registry.user", user, "a name without a colon")
    return RegistryAddress(url=url, user=user or "", password=password or "")


def _subject(values: Mapping[str, Any], topics: tuple[str, ...]) -> str:
    """The subject that gives the columns; "" when the file does."""
    subject: str | None = values["value.schema.subject"]
    if values["value.schema.registry"] is None:
        return ""
    if values["value.schema.file"] is not None:
        if subject is not None:
            raise OptionError("value.schema.subject", subject, "not with value.schema.file")
        return ""
    if subject is not None:
        return subject
    if len(topics) != 1:
        allowed = "a subject; only one topic alone has a default, TOPIC-value"
        raise OptionError("value.schema.subject", None, allowed)
    return f"{topics[0]}-value"
