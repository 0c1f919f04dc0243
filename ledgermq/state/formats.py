"""Formats: the versions of the state's records that a program reads, and the one that it writes.

Whatever its version, a record is a JSON object that has its version as `v`; no later one may change
that. All else is the version's own: `Format` holds what writes and what reads it. A program
reads all versions from 1 to the newest that it has, and writes one of them:

    a program is made      with a format n+1 beside the former ones
    members are replaced   one by one; the group writes n, which all of them read
    the last one is there  each member has told its leader that it reads n+1: it writes n+1
    until that record      any member may go back to the former program
    from then on           n+1 stands in the state: nobody who reads n only can follow

What stands in the state is written on, whoever is met: when it was first written, all members read
it. A leader asks for each proposal what it may write (`written`), nobody else decides that.

A member that meets a record of a version, kind or table that its program does not read must not
pass over it, for from then on its state would be another one, and nobody would notice: it ends, and
says what to install. Its log and its mark stay as they are, so that a program that reads the record
goes on right there.

No other content of a committed record may end a member, for it would end all of them, again at each
start. An entry that cannot be read is left out; a record of which nothing can be read changes
nothing, is counted and logged. Both depend on the bytes alone, so all members do the same.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ledgermq.commitlog import UnreadRecordError
from ledgermq.protocol import lenient_json
from ledgermq.protocol.errors import ProtocolError
from ledgermq.state.commands import Command, Proposed, UnknownPartError, WriteRecord, command_of
from ledgermq.state.records import body_of
from ledgermq.state.refusals import RejectedRecords

# What every program reads.
OLDEST: Final = 1

# What a decoder may raise on content that it does not expect. Others, such as MemoryError, say
# nothing of the record: another member, or the next start, may read it.
_CONTENT_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    ProtocolError,
    TypeError,
    ValueError,
)


class Format(NamedTuple):
    """One version of the records."""

    version: int
    # Makes the body of a record: of its members, and of those that are encoded already.
    write: WriteRecord
    # Makes the command of a record's members; None for one that makes no sense. Raises
    # UnknownPartError.
    read: Callable[[Mapping[str, Any]], Command | None]


def _write_first(record: Mapping[str, Any], part: Mapping[str, str] | None = None) -> bytes:
    return body_of({"v": OLDEST, **record}, part)


# What this program has.
FORMATS: Final = (Format(OLDEST, _write_first, command_of),)


class RejectedRecordError(Exception):
    """The content of a record cannot be read by any version of the format."""


class Group(Protocol):
    """What is known of the programs of all members."""

    @property
    def alarm(self) -> str | None:
        """Why members do not work together, for operators; None while they do."""

    @property
    def peers(self) -> Mapping[str, int | None]:
        """Newest format that each other member is known to read; None for one of Java."""

    def read_by_all(self) -> int:
        """Returns the newest format that all members are known to read."""

    def take_lack(self) -> bool:
        """Tells whether a member lacked the state when it was greeted since the last call."""


class StateFormats:
    """The formats of one member."""

    def __init__(self, formats: Sequence[Format] = FORMATS) -> None:
        """Nothing stands in the state yet, and there is no other member.

        Args:
            formats: that the program has, from version 1 on without a gap.
        """
        assert [one.version for one in formats] == list(range(OLDEST, len(formats) + 1))
        self._formats = tuple(formats)
        # Newest version of the records that are applied.
        self.applied = OLDEST
        # That is newer than its file; cleared by whoever writes it.
        self.is_unsaved = False
        # None: this member is alone.
        self.group: Group | None = None
        # Committed records that changed nothing because of their content.
        self.rejected = RejectedRecords()

    @property
    def reads(self) -> int:
        """The newest version that is read here."""
        return self._formats[-1].version

    @property
    def written(self) -> Format:
        """What a leader writes at this moment."""
        known = self.reads if self.group is None else self.group.read_by_all()
        return self._formats[max(self.applied, min(known, self.reads)) - 1]

    @property
    def alarm(self) -> str | None:
        """Why members do not work together, for operators; None while they do."""
        return None if self.group is None else self.group.alarm

    def read(self, body: bytes, index: int) -> Proposed | None:
        """Returns the command in a record; None for one that is rejected, counted and logged.

        Args:
            index: of the record's entry, for errors.

        Raises:
            UnreadRecordError: a newer program wrote it.
        """
        try:
            return self._decode(body, index)
        except RejectedRecordError as error:
            self.rejected.note(index, len(body), str(error))
        except _CONTENT_ERRORS as error:
            self.rejected.note(index, len(body), f"{type(error).__name__}: {error}")
        return None

    def _decode(self, body: bytes, index: int) -> Proposed:
        try:
            record = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RejectedRecordError(f"it is not JSON: {error}") from error
        limit = lenient_json.DEPTH_MAX
        # Most records have less brackets than may be nested.
        if body.count(b"{") + body.count(b"[") > limit and lenient_json.is_deep(record):
            raise RejectedRecordError(f"it is nested too deep (limit {limit})")
        version = record.get("v") if isinstance(record, dict) else None
        if type(version) is not int or version < OLDEST:
            raise RejectedRecordError(f"it has no version (first version {OLDEST})")
        if version > self.reads:
            raise self._unread(f"version {version}", index)
        try:
            command = self._formats[version - 1].read(record)
        except UnknownPartError as error:
            raise self._unread(f"version {version} and {error}", index) from error
        if command is None:
            raise RejectedRecordError("it lacks members of its kind")
        writer = record.get("by")
        return Proposed(command, writer if isinstance(writer, str) else "", version)

    def note(self, version: int) -> None:
        """Notes that a record is applied: from now on the state is in its format, or a newer."""
        if version > self.applied:
            self.applied, self.is_unsaved = version, True

    def _unread(self, found: str, index: int | None) -> UnreadRecordError:
        return UnreadRecordError(
            "a record of the broker's state",
            index=index,
            found=found,
            reads=f"versions {OLDEST} to {self.reads}",
            remedy="start this member with the program that the other members run",
        )

    # The file, and what operators see.

    def to_json(self) -> dict[str, Any]:
        """Returns what the file holds."""
        return {"format": self.applied}

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over what the file holds.

        Raises:
            UnreadRecordError: the state is in a format that this program does not read.
        """
        version = value.get("format")
        if type(version) is not int:
            return
        if version > self.reads:
            raise self._unread(f"version {version}", None)
        self.applied = max(self.applied, version)

    def describe(self) -> dict[str, str]:
        """Returns what operators see: the state's format, the one that is written, and what each
        member is known to read.
        """
        peers = {} if self.group is None else self.group.peers
        known = [f"{name}={'Java' if reads is None else reads}" for name, reads in peers.items()]
        return {
            "stateFormat": str(self.applied),
            "stateFormatWritten": str(self.written.version),
            "stateFormatRead": str(self.reads),
            "stateFormatReadByPeers": ";".join(known),
            "stateRecordsRejected": str(self.rejected.count),
        }
