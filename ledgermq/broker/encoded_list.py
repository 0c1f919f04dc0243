"""EncodedList: the body of an answer that shows a whole table, kept until the table changes.

To write 20,000 topics as JSON takes a twentieth of a second; to send them again costs their bytes
alone. What an account may not see is left out, so there is a body for each account that asks.

A body that has to be written is written piece by piece (`SlicedAnswers`): whoever makes a topic
before each question, or may ask as many accounts, holds up nobody but who asks. The table may
change meanwhile. The head of the document is read first, so that what is told holds all changes up
to the version that it names, and maybe later ones; only what nothing changed under is kept.
"""

import time
from collections.abc import Callable, Generator, Hashable, Mapping
from itertools import islice
from typing import Any, Final

from ledgermq.broker.dispatch import Answer
from ledgermq.broker.sight import Asker, Eyes, Sight
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import NAMES_A_PIECE, Pieces, SlicedAnswers
from ledgermq.state.document import Behind, Document

# Of one piece of work: members of one entry, and what was written; half a microsecond a member.
_MEMBERS_A_PIECE: Final = 512
_BYTES_A_PIECE: Final = 65_536
# Bodies of accounts that are kept, of one table; the eldest goes.
_ACCOUNTS_MAX: Final = 8
# A table in flux is shown as it was for so many times the time that it took to encode.
_REST_FACTOR: Final = 10
_QUICK_S: Final = 0.005

# Returns those entries of a table that may be shown.
Shown = Callable[[Asker, Mapping[str, Any]], Mapping[str, Any]]
Written = Generator[None, None, bytes]


class EncodedList:
    """The bodies of one table."""

    __slots__ = (
        "_bodies",
        "_clock_s",
        "_document_of",
        "_encode",
        "_kept_until_s",
        "_shown",
        "_sliced",
        "_version",
        "_version_of",
    )

    def __init__(
        self,
        document_of: Callable[[], Document],
        shown: Shown,
        sliced: SlicedAnswers,
        encode: Callable[[Any], bytes] = lenient_json.write,
        version_of: Callable[[], Hashable] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Encodes nothing yet.

        Args:
            document_of: gives the table.
            shown: leaves out what an account may not see; a few entries at a time.
            sliced: makes answers that take long.
            encode: writes an entry.
            version_of: another value after each change of the table; None for a table that changes
                all the time: then a body may be a little old, and encoding takes a tenth of the
                processor at most.
            clock_s: seconds, monotonic.
        """
        self._document_of = document_of
        self._shown = shown
        self._sliced = sliced
        self._encode = encode
        self._version_of = version_of
        self._clock_s = clock_s
        # Each with what its asker sees; valid for this version, and, without one, until then.
        self._bodies: list[tuple[object, bytes]] = []
        self._version: Hashable = None
        self._kept_until_s = float("-inf")

    def answer(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """Returns the table as far as the account may see it: at once what is kept.

        Raises:
            SystemBusyError: too many wait for long answers.
        """
        body = self._find(connection.sight)
        if body is not None:
            return command.response(ResponseCode.SUCCESS, body=body)
        return self._sliced.answer(connection, self._pieces(command, Eyes(connection.sight)))

    def _pieces(self, command: RemotingCommand, eyes: Eyes) -> Pieces:
        # Who stood before it in the line may have asked the same.
        body = self._find(eyes.sight)
        if body is None:
            body = yield from self._made(eyes)
        return command.response(ResponseCode.SUCCESS, body=body)

    def _find(self, sight: Sight | None) -> bytes | None:
        version = None if self._version_of is None else self._version_of()
        if version != self._version or (version is None and self._clock_s() >= self._kept_until_s):
            self._version = version
            self._bodies.clear()
        sees = _seen_by(sight)
        return next((body for key, body in self._bodies if key is sees), None)

    def _made(self, eyes: Eyes) -> Written:
        version = self._version
        pieces = encode_document(
            self._document_of(), lambda table: self._shown(eyes, table), self._encode
        )
        took_s = 0.0
        while True:
            begun_s = self._clock_s()
            try:
                next(pieces)
            except StopIteration as end:
                body: bytes = end.value
                break
            finally:
                took_s += self._clock_s() - begun_s
            yield
        self._keep(_seen_by(eyes.sight), body, version, took_s)
        return body

    def _keep(self, sees: object, body: bytes, version: Hashable, took_s: float) -> None:
        if self._version_of is not None:
            if version != self._version_of() or version != self._version:
                return
        else:
            # What is quickly made is never old.
            rest_s = took_s * _REST_FACTOR if took_s >= _QUICK_S else 0.0
            self._kept_until_s = self._clock_s() + rest_s
        # Askers of two lines may have had it written for both.
        others = [kept for kept in self._bodies if kept[0] is not sees]
        self._bodies = [*others, (sees, body)][-_ACCOUNTS_MAX:]


def _seen_by(sight: Sight | None) -> object:
    return None if sight is None else sight.key


def encode_document(
    document: Document,
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    encode: Callable[[Any], bytes],
) -> Written:
    """Writes a document as `encode` would write it whole; yields behind each piece.

    Args:
        document: its tables may change between two pieces.
        shown: which entries of a table are written.
        encode: writes an entry.
    """
    # Grows where it is: pieces that are joined at last would be megabytes to copy in one turn.
    out = bytearray(b"{")
    for name, value in document.head.items():
        out += b"%b:%b," % (lenient_json.write_plain(name), encode(value))
    for name, behind in document.tables:
        out += b"%b:{" % lenient_json.write_plain(name)
        yield from _encode_table(behind, shown, encode, out)
        _close(out)
        out += b","
    _close(out)
    return bytes(out)


def _encode_table(
    behind: Behind,
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    encode: Callable[[Any], bytes],
    out: bytearray,
) -> Generator[None, None, None]:
    last, yielded_at = "", len(out)
    while entries := dict(islice(behind(last), NAMES_A_PIECE)):
        last = next(reversed(entries))
        for name, value in shown(entries).items():
            out += b"%b:" % lenient_json.write_plain(name)
            yield from _encode_entry(value, encode, out)
            out += b","
            if len(out) - yielded_at >= _BYTES_A_PIECE:
                yielded_at = len(out)
                yield
        yield


def _encode_entry(
    value: Any, encode: Callable[[Any], bytes], out: bytearray
) -> Generator[None, None, None]:
    """An entry alone, which may have tens of thousands of members, as offsets of queues have."""
    if not isinstance(value, Mapping) or len(value) <= _MEMBERS_A_PIECE:
        out += encode(value)
        return
    members = iter(list(value.items()))
    out += b"{"
    while piece := dict(islice(members, _MEMBERS_A_PIECE)):
        out += encode(piece)[1:-1] + b","
        yield
    _close(out)


def _close(out: bytearray) -> None:
    """Ends an object; a comma stands behind the last member, if there is one."""
    if out.endswith(b","):
        out.pop()
    out += b"}"
