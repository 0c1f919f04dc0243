"""Rules of access control as one record: all files of a member, and when they were changed.

    {"rules": DOCUMENT, "version": VERSION,
     "more": {"acl/a.yml": {"rules": DOCUMENT, "version": VERSION}}}

`more` is left out when there is nothing in the folder. In the ledger, and in the note that a member
makes before it replaces its files, this stands sealed (`rules_seal.py`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.broker.access.rules_folder import MAIN_FILE, check_file_name
from ledgermq.protocol.replaced_file import replace_file
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError

# Rules and version of one file.
RulesFile = tuple[AccessRules, DataVersion]


def record_of(files: Mapping[str, RulesFile]) -> dict[str, Any]:
    """Returns the record of files, by their names."""
    rules, version = files[MAIN_FILE]
    record = {"rules": rules.to_document(), "version": version.to_json()}
    more = {
        name: {"rules": rules.to_document(), "version": version.to_json()}
        for name, (rules, version) in files.items()
        if name != MAIN_FILE
    }
    return {**record, "more": more} if more else record


def files_of(record: Mapping[str, Any]) -> dict[str, RulesFile]:
    """Returns the files of a record, by their names.

    Raises:
        AccessRulesError: it holds none.
    """
    files = {MAIN_FILE: _file_of(record)}
    more = record.get("more", {})
    if not isinstance(more, Mapping):
        raise AccessRulesError("the files of the folder are no mapping")
    for name, entry in more.items():
        if not isinstance(entry, Mapping):
            raise AccessRulesError(f"{str(name)[:64]!r} holds no rules")
        files[check_file_name(name)] = _file_of(entry)
    return files


def _file_of(entry: Mapping[str, Any]) -> RulesFile:
    return parse_rules(entry.get("rules")), DataVersion.from_json(entry.get("version"))


def write_note(path: Path, record: Mapping[str, Any]) -> None:
    """Notes the record that is about to be written to the files.

    Raises:
        OSError: see `replace_file`.
    """
    replace_file(path, [json.dumps(record).encode("ascii")])
