"""The JSON files under `config/`, as upstream reads and writes them.

Written in fastjson's pretty form: one tab for each level, alphabetical keys in objects, maps with
integer keys unquoted on one line. Read with a tolerant parser, because that form is not JSON:
unquoted integer keys, any layout. A file is replaced whole: new content under another name,
synced when it has to last, the old content kept as `.bak`, then renamed over the old file, so that
at every moment one of the two is complete. Source: `MixAll.string2File`, `ConfigManager.java`.
"""

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ledgermq.dledger.store.filesystem import open_new
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.state.document import Behind, Document
from ledgermq.state.errors import StateFileError, StateFileTooLargeError

# Of what is written and of what is read alike: a file that a broker wrote starts it again. The
# tables are bounded where they grow, so that their files stay below.
FILE_BYTES_MAX: Final = 512 << 20
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_INTEGERS: Final = {int}
# A text in quotes, with its escapes.
_quoted: Final[Callable[[Any], str]] = json.encoder.encode_basestring
# Queues or locks of one entry that are written at once.
_ITEMS_MAX: Final = 2000
# Strings are matched first, so that a colon inside one is never taken for the end of a key.
_STRING_OR_BARE_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(?=\s*:)')


class ContentFile(Protocol):
    """A file that is read and replaced as a whole."""

    # The content is known to survive a power cut.
    is_durable: bool

    @property
    def name(self) -> str:
        """Of the file, without its folder."""

    def read(self, *, copy: bool = False) -> bytes | OSError | None:
        """Returns the content of the file or of its copy; see StateFile."""

    def set_aside(self) -> None:
        """Keeps a file that is not believed under another name, for people."""

    def check(self, size_bytes: int) -> None:
        """Raises StateFileTooLargeError for more than is read at a start."""

    def write(self, content: bytes, *, is_durable: bool) -> None:
        """Replaces the content; blocks. Raises OSError."""


class StateFile:
    """One file under `config/` and its `.bak` copy.

    Commit point of a write: the rename over the old file. Of several writes that are not durable
    the copy keeps none: a power cut may empty them all, and the copy must outlast it. So the copy
    and its name are on disk before the first of them, and a write is durable where there is none.
    """

    def __init__(self, path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> None:
        """Touches nothing yet; `bytes_max` bounds what is read and what is written."""
        self._path = path
        self._bytes_max = bytes_max
        self._backup = path.with_name(path.name + ".bak")
        # The content is known to survive a power cut. Whoever writes sets it; the reactor looks at
        # it, and takes it back, only while nothing is being written.
        self.is_durable = False
        # The copy survives a power cut, and nothing later than it was durable. Of whoever writes.
        self._has_copy = False

    def __str__(self) -> str:
        return str(self._path)

    def read(self, *, copy: bool = False) -> bytes | OSError | None:
        """Returns the content of the file or of its copy, None when it is not there, or why it is
        no such file.

        Raises:
            OSError: the disk refuses.
        """
        try:
            return read_regular_file(self._backup if copy else self._path, self._bytes_max)[0]
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EFBIG):
                raise
            return error

    def load(self) -> dict[str, Any] | None:
        """Returns the content of the file for tools, None when it is missing or empty.

        Raises:
            StateFileError: it cannot be read.
        """
        raw = self.read()
        try:
            if isinstance(raw, OSError):
                raise ValueError(raw.strerror)
            return parse_object(raw) if raw is not None and raw.strip() else None
        except ValueError as error:
            raise StateFileError(f"cannot read {self._path}: {error}") from error

    def set_aside(self) -> None:
        """Keeps a file that is not believed under another name, for people."""
        refused = self._path.with_name(self._path.name + ".refused")
        if self._path.exists():
            refused.unlink(missing_ok=True)
            os.link(self._path, refused)

    def save(self, value: Mapping[str, Any], *, is_durable: bool) -> None:
        """Replaces the file by a value; see `write`."""
        self.write(self.encode(value), is_durable=is_durable)

    @staticmethod
    def encode(value: Mapping[str, Any]) -> bytes:
        """Returns the content of the file for a value."""
        return encode_text(format_pretty(value))

    @property
    def name(self) -> str:
        """Of the file, without its folder."""
        return self._path.name

    def check(self, size_bytes: int) -> None:
        """Raises StateFileTooLargeError for more than `load` would read."""
        if size_bytes > self._bytes_max:
            raise StateFileTooLargeError(self._path, size_bytes, self._bytes_max)

    def write(self, content: bytes, *, is_durable: bool) -> None:
        """Replaces the file.

        Args:
            content: what the file holds afterwards.
            is_durable: True syncs file and directory before the function returns, which blocks.
                False does so only where a power cut would leave nothing that can be read.

        Raises:
            StateFileTooLargeError: `load` would not read it; the old file is untouched.
            OSError: the disk refused; the old file is untouched.
        """
        self.check(len(content))
        is_durable = is_durable or not (self.is_durable or self._has_copy)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path.with_name(self._path.name + ".tmp")
        with os.fdopen(open_new(str(temporary)), "wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fdatasync(file.fileno())
        if self._path.exists() and (self.is_durable or not self._backup.exists()):
            spare = self._path.with_name(self._path.name + ".tmp.bak")
            spare.unlink(missing_ok=True)
            os.link(self._path, spare)
            spare.replace(self._backup)
            if not is_durable:
                # Names are kept or lost one by one: the copy's comes first.
                self._sync_directory()
        self._has_copy = not is_durable
        self.is_durable = False
        temporary.replace(self._path)
        if is_durable:
            self._sync_directory()
            self.is_durable = True

    def _sync_directory(self) -> None:
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def parse_tolerant(text: str) -> Any:
    """Parses JSON in which keys may be unquoted whole numbers.

    Raises:
        ValueError: the text is not even that.
    """

    def quoted(match: re.Match[str]) -> str:
        if match.group(2) is None:
            return match.group(0)
        return f'{match.group(1)}"{match.group(2)}"'

    return json.loads(_STRING_OR_BARE_KEY.sub(quoted, text))


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parses the content of a state file.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        value = parse_tolerant(raw.decode("utf-8"))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def encode_text(text: str) -> bytes:
    """Returns JSON's text as bytes; half of a surrogate pair, which a client may have sent within a
    text, stays one: as JSON's escape.
    """
    return text.encode("utf-8", "backslashreplace")


def format_pretty(value: object) -> str:
    """Returns a value in fastjson's pretty form; a map with int keys is written with unquoted keys
    on one line.
    """
    parts: list[str] = []
    _write(value, 0, parts)
    return "".join(parts)


def pretty_slices(document: Document, slice_chars: int) -> Iterator[str]:
    """Yields what `format_pretty` makes of the whole document, piece by piece.

    Args:
        document: its tables may change between two pieces; its members are in order of their names.
        slice_chars: of a piece; an entry more, or as much as one with many queues takes at once.
    """
    begin, parts = "{\n\t", list[str]()
    for name, value in document.head.items():
        parts.append(f"{begin}{_quoted(name)}:")
        _write(value, 1, parts)
        begin = ",\n\t"
    for name, behind in document.tables:
        parts.append(f"{begin}{_quoted(name)}:")
        yield "".join(parts)
        yield from _table_slices(behind, slice_chars)
        begin, parts = ",\n\t", []
    yield "\n}"


def _table_slices(behind: Behind, slice_chars: int) -> Iterator[str]:
    begin, after = "{\n\t\t", ""
    while True:
        parts: list[str] = []
        size, large = 0, None
        for name, value in behind(after):
            if size >= slice_chars:
                break
            after = name
            parts.append(f"{begin}{_quoted(name)}:")
            begin = ",\n\t\t"
            if isinstance(value, Mapping | list) and len(value) > _ITEMS_MAX:
                large = value
                break
            count = len(parts)
            _write(value, 2, parts)
            size += sum(map(len, parts[count - 1 :]))
        else:
            yield "".join(parts) + ("\n\t}" if after else "{}")
            return
        yield "".join(parts)
        if large is not None:
            yield from _large_slices(large)


def _large_slices(value: Mapping[int, int] | list[Any]) -> Iterator[str]:
    """Yields the offsets of many queues, or many locks."""
    if isinstance(value, list):
        begin, end, items = "[", "]", value
    else:
        # New queues are left out, and written the next time.
        begin, end, items = "{", "\n\t\t}", sorted(value)
    for start in range(0, len(items), _ITEMS_MAX):
        some = items[start : start + _ITEMS_MAX]
        if isinstance(value, list):
            text = _ENCODER.encode(some)[1:-1]
        else:
            text = ",".join([f"{key}:{value[key]}" for key in some])
        yield begin + text
        begin = ","
    yield end


def _write(value: object, level: int, parts: list[str]) -> None:
    """Appends a value's text; tables of a large broker have a million of them, so each is cheap."""
    kind = type(value)
    if kind is int:
        parts.append(str(value))
    elif kind is bool:
        parts.append("true" if value else "false")
    elif kind is str:
        parts.append(_quoted(value))
    elif not isinstance(value, Mapping):
        parts.append(_ENCODER.encode(value))
    elif not value:
        parts.append("{}")
    else:
        _write_map(value, level, parts)


def _write_map(value: Mapping[Any, object], level: int, parts: list[str]) -> None:
    end = "\n" + "\t" * level + "}"
    if set(map(type, value)) == _INTEGERS:
        if set(map(type, value.values())) == _INTEGERS:
            parts.append("{" + ",".join([f"{key}:{value[key]}" for key in sorted(value)]) + end)
            return
        begin = "{"
        for key in sorted(value):
            parts.append(f"{begin}{key}:")
            _write(value[key], level + 1, parts)
            begin = ","
    else:
        indent = "\n" + "\t" * (level + 1)
        begin = "{" + indent
        for key in sorted(value):
            parts.append(f"{begin}{_quoted(key)}:")
            _write(value[key], level + 1, parts)
            begin = "," + indent
    parts.append(end)
