"""Request: what a view is given. Reading it never trusts it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from ledgermq.http.replies import RequestError

_FIELDS_MAX: Final = 100
_DIGITS_MAX: Final = 20
_TRUE: Final = frozenset({"", "1", "true", "yes"})
_FALSE: Final = frozenset({"0", "false", "no"})

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        method: in capitals.
        segments: of the path, decoded one by one: a slash inside of a name stays there.
        query: values by name, in their order.
        headers: by name in small letters; several of one name are joined by commas.
        body: all of it.
        peer_host: address of the client's end of the connection.
        is_secure: whether it came by TLS.
        params: parts of the path by the names that the route gives them.
    """

    method: str = "GET"
    segments: tuple[str, ...] = ()
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer_host: str = "127.0.0.1"
    is_secure: bool = False
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path for display; segments with a slash cannot be told apart in it."""
        return "/" + "/".join(self.segments)

    def text(self, name: str, default: str | None = None, *, chars_max: int = 1024) -> str:
        """Returns one value of the query.

        Raises:
            RequestError: it is absent and has no default, comes twice, or is too long.
        """
        values = self.query.get(name)
        if values is None:
            if default is None:
                raise RequestError(400, f"{name} is missing", field=name, value=None)
            return default
        if len(values) != 1:
            raise RequestError(400, f"{name} comes {len(values)} times", field=name, limit=1)
        if len(values[0]) > chars_max:
            message = f"{name} has {len(values[0])} characters, {chars_max} are allowed"
            raise RequestError(400, message, field=name, value=values[0], limit=chars_max)
        return values[0]

    def integer(self, name: str, default: int | None = None, *, low: int, high: int) -> int:
        """Returns one whole number of the query.

        Raises:
            RequestError: it is no number, or none from `low` to `high`.
        """
        text = self.text(name, None if default is None else str(default))
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
        if not is_number or not low <= int(text) <= high:
            message = f"{name} is a whole number from {low} to {high}"
            raise RequestError(400, message, field=name, value=text, limit=[low, high])
        return int(text)

    def flag(self, name: str) -> bool:
        """Returns whether a switch is in the query: `?verbose`, `?verbose=true`.

        Raises:
            RequestError: its value is neither yes nor no.
        """
        text = self.text(name, "no").lower()
        if text not in _TRUE | _FALSE:
            limit = ["true", "false"]
            raise RequestError(400, f"{name} is a switch", field=name, value=text, limit=limit)
        return text in _TRUE

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """Returns one value of the query that is one of the choices.

        Raises:
            RequestError: it is another.
        """
        text = self.text(name, default)
        if text not in choices:
            limit = sorted(choices)
            message = f"{name} is one of {', '.join(limit)}"
            raise RequestError(400, message, field=name, value=text, limit=limit)
        return text

    def json(self, kind: type[_Value]) -> _Value:
        """Returns the body as a value of a type that msgspec knows.

        Raises:
            RequestError: it is no JSON, is called otherwise, or has another shape.
        """
        kind_told = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind_told != "application/json":
            message = "the body has to be application/json"
            name = "Content-Type"
            raise RequestError(415, message, field=name, value=kind_told, limit="application/json")
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            where = place.rstrip("`").lstrip(".") or "body"
            raise RequestError(400, message, field=where) from None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RequestError(400, f"the body is no JSON: {error}", field="body") from None

    def cookie(self, name: str) -> str | None:
        """Returns a cookie; None when it is absent or comes twice with different values."""
        values = {
            value.strip()
            for part in self.headers.get("cookie", "").replace(",", ";").split(";")
            for key, _, value in [part.partition("=")]
            if key.strip() == name
        }
        return values.pop() if len(values) == 1 else None


def read_target(target: bytes) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """Returns the segments of the path and the query of a request line.

    Raises:
        RequestError: it is no path, or not UTF-8.
    """
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/"):
        raise RequestError(400, "the target of a request begins with a slash", field="path")
    try:
        segments = tuple(unquote_to_bytes(part).decode() for part in path[1:].split(b"/"))
        pairs = parse_qsl(
            query.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_FIELDS_MAX,
        )
    except UnicodeDecodeError:
        raise RequestError(400, "path and query are UTF-8", field="path") from None
    except ValueError:
        message = f"a query has at most {_FIELDS_MAX} fields"
        raise RequestError(400, message, field="query", limit=_FIELDS_MAX) from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return (() if segments == ("",) else segments), values
