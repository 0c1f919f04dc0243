"""A made-up next version of the state's records, for the proof that formats can change.

No program of ours writes it, and no user can ask for it: simulated members and the processes of
tests are built with it. It says what version 1 says under other names, so that a program which has
version 1 only can make nothing of it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ledgermq.state.commands import Command, command_of
from ledgermq.state.formats import FORMATS, Format
from ledgermq.state.records import body_of

NEXT_VERSION: Final = FORMATS[-1].version + 1
_NAMES: Final = {"kind": "what", "put": "entries", "removed": "gone"}
_FORMER_NAMES: Final = {name: former for former, name in _NAMES.items()}
# Begins a body of this version.
NEXT_MARK: Final = b'{"v":%d,' % NEXT_VERSION


def _renamed(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in record.items()}


def _write(record: Mapping[str, Any], part: Mapping[str, str] | None = None) -> bytes:
    entries = None if part is None else _renamed(part, _NAMES)
    return body_of({"v": NEXT_VERSION, **_renamed(record, _NAMES)}, entries)


def _read(record: Mapping[str, Any]) -> Command | None:
    return command_of(_renamed(record, _FORMER_NAMES))


# What the next program has.
NEXT_FORMATS: Final = (*FORMATS, Format(NEXT_VERSION, _write, _read))


def members_of(body: bytes) -> dict[str, Any]:
    """Returns the members of a record of either version, under the names of version 1."""
    record = json.loads(body)
    return _renamed(record, _FORMER_NAMES) if record["v"] == NEXT_VERSION else record
