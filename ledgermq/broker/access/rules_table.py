"""RulesTable: the rules in force on this member, its files, and the leader's rules.

The files are plain_acl.yml and those of the folder beside it (`rules_folder.py`). Whoever changed
them last is right, by the clock, wherever it was:

- a file that was edited, added or removed on any member counts there within a few seconds; a leader
  gives all of them to all;
- a change by a tool reaches the leader, which gives it to all; each member writes its own files;
- rules from the ledger count when they are newer than the last change of the files, so that a
  record that is applied again after a restart does not undo what was edited meanwhile.

A file that cannot be used changes nothing: the rules in force stay, and the log says why. Files of
the leader are noted as a whole before the first of them is replaced, so that a member that is
killed in between goes on with it at its next start.

    {"kind": "access", "rules": DOCUMENT, "version": VERSION, "changed": MS,
     "more": {"acl/a.yml": {"rules": DOCUMENT, "version": VERSION}}}

`more` is left out when there is nothing in the folder.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.broker.access.rules_file import write_rules
from ledgermq.broker.access.rules_folder import (
    MAIN_FILE,
    FolderRules,
    check_file_name,
    file_path,
    look,
    merge,
    newest_file_ms,
    read_folder,
    set_time,
    write_folder,
)
from ledgermq.broker.data_version import DataVersion
from ledgermq.broker.errors import AccessRulesError

# Rules that are written to the ledger in one record.
_RECORD_BYTES_MAX: Final = 2 << 20
# Behind the name of plain_acl.yml: the leader's rules while they are written to the files.
_TAKING: Final = ".taking"

# Rules and version of one file.
_File = tuple[AccessRules, DataVersion]

_log = Logger()


class RulesTable:
    """The rules in force.

    Invariant: `rules` were read or checked whole; a failure of any kind leaves them as they are.
    """

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        """Binds the files; nothing is read before `load`.

        Args:
            path: plain_acl.yml of this member.
            now_ms: wall clock.
        """
        self.path = path
        self._now_ms = now_ms
        # All files together.
        self.rules = AccessRules()
        # By name, and which of them each account is of.
        self._files: dict[str, _File] = {MAIN_FILE: (AccessRules(), DataVersion())}
        self._owners: dict[str, str] = {}
        # When the rules were changed, ms since 1970.
        self._changed_ms = 0
        # What the files looked like when they were last read or written.
        self._looks: object = None
        # Why the files are not what is in force; None while they are.
        self.alarm: str | None = None

    @property
    def version(self) -> DataVersion:
        """Of plain_acl.yml."""
        return self._files[MAIN_FILE][1]

    @property
    def versions(self) -> dict[str, DataVersion]:
        """Of all files, by their whole paths."""
        return {
            str(file_path(self.path, name)): version for name, (_, version) in self._files.items()
        }

    @property
    def count(self) -> int:
        """Accounts in force."""
        return len(self.rules.accounts)

    # The files.

    def load(self) -> None:
        """Reads the files at the start.

        Raises:
            AccessRulesError: they cannot be used.
        """
        self._go_on_taking()
        self._looks = look(self.path)
        found = read_folder(self.path)
        self._set(_told(found), found.changed_ms)
        self._warn(found)

    def reload(self) -> bool:
        """Reads the files again when one was changed; returns whether other rules are in force."""
        looks = look(self.path)
        if looks == self._looks:
            return False
        self._looks = looks
        try:
            found = read_folder(self.path)
            files, changed_ms, is_other = self._newer(found)
            self._set(files, changed_ms)
        except AccessRulesError as error:
            self.alarm = str(error)
            _log.error("the rules of access control stay as they were: {error}", error=error)
            return False
        self._warn(found)
        if changed_ms > found.changed_ms:
            self._keep_time(changed_ms)
        if is_other:
            _log.info("{path} was read again: {count} accounts", path=self.path, count=self.count)
        return is_other

    def _newer(self, found: FolderRules) -> tuple[dict[str, _File], int, bool]:
        """What was read: the files, when they were changed, and whether they say other things."""
        before = {name: rules.to_document() for name, (rules, _) in self._files.items()}
        files = _told(found)
        other = [n for n, (rules, _) in files.items() if rules.to_document() != before.get(n)]
        if not other and files.keys() == before.keys():
            return files, found.changed_ms, False
        changed_ms = found.changed_ms
        if changed_ms <= self._changed_ms:
            # Something was removed, or put there with an older time.
            changed_ms = max(self._now_ms(), self._changed_ms + 1)
        for name in other or [MAIN_FILE]:
            rules, version = files[name]
            files[name] = (rules, DataVersion(changed_ms, version.counter + 1))
        return files, changed_ms, True

    def _keep_time(self, changed_ms: int) -> None:
        """Lets the next start know when what is no longer there was removed."""
        try:
            os.utime(self.path, ns=(changed_ms * 1_000_000, changed_ms * 1_000_000))
        except OSError as error:
            _log.warn("{path}: {reason}", path=self.path, reason=error.strerror)
        self._looks = look(self.path)

    def _warn(self, found: FolderRules) -> None:
        for name, file in found.files.items():
            path = file_path(self.path, name)
            if file.is_exposed:
                _log.warn("{path} holds secrets and can be read by others: chmod 600", path=path)
            for access_key in file.rules.accounts:
                if self._owners[access_key] != name:
                    _log.warn(
                        "{path}: the account {access_key} is not used, {first} has it, too",
                        path=path,
                        access_key=access_key,
                        first=file_path(self.path, self._owners[access_key]),
                    )

    # Changes by a tool.

    def change_account(self, access_key: str, edit: Callable[[AccessRules], AccessRules]) -> None:
        """Changes the file that an account is of, plain_acl.yml for one that is new.

        Raises:
            AccessRulesError: as `change`.
        """
        self._change(self._owners.get(access_key, MAIN_FILE), edit)

    def delete_account(self, access_key: str) -> None:
        """Deletes an account.

        Raises:
            AccessRulesError: as `change`; also when a second file has it, which would count then.
        """
        holders = [name for name, (rules, _) in self._files.items() if access_key in rules.accounts]
        if len(holders) > 1:
            paths = ", ".join(str(file_path(self.path, name)) for name in sorted(holders))
            raise AccessRulesError(f"several files have the account: {paths}; delete it there")
        self.change_account(access_key, lambda rules: rules.without_account(access_key))

    def change(self, edit: Callable[[AccessRules], AccessRules], path: str | None = None) -> None:
        """Changes one file, plain_acl.yml when none is named, and puts it in force on the leader.

        Args:
            edit: makes the new rules of that file.
            path: of one of the files, whole.

        Raises:
            AccessRulesError: there is no such file, it cannot be written, or the rules are too
                large; nothing changed.
        """
        known = {str(file_path(self.path, name)): name for name in self._files}
        if path and path not in known:
            raise AccessRulesError(f"{path[:255]} is none of {', '.join(sorted(known))}")
        self._change(known[path] if path else MAIN_FILE, edit)

    def _change(self, name: str, edit: Callable[[AccessRules], AccessRules]) -> None:
        before, version = self._files[name]
        rules = edit(before)
        changed_ms = max(self._now_ms(), self._changed_ms + 1)
        newer = DataVersion(changed_ms, version.counter + 1)
        files = {**self._files, name: (rules, newer)}
        size = len(json.dumps(_record(files, changed_ms)))
        if size > _RECORD_BYTES_MAX:
            raise AccessRulesError(f"the rules have {size} bytes, allowed are {_RECORD_BYTES_MAX}")
        merge({name: rules for name, (rules, _) in files.items()})
        path = file_path(self.path, name)
        try:
            write_rules(path, rules, newer, changed_ms)
            set_time(self.path, changed_ms)
        except OSError as error:
            raise AccessRulesError(f"{path} cannot be written: {error.strerror}") from error
        self._set(files, changed_ms)
        self._looks = look(self.path)

    # The ledger.

    def to_record(self) -> dict[str, Any]:
        """Returns the rules as they go through the ledger."""
        return _record(self._files, self._changed_ms)

    def follow(self, record: Mapping[str, Any]) -> None:
        """Takes over the leader's rules, unless those here are newer; writes them to the files."""
        changed_ms = record.get("changed")
        if not isinstance(changed_ms, int) or changed_ms <= self._changed_ms:
            return
        try:
            files = _files_of(record)
            self._set(files, changed_ms)
        except AccessRulesError as error:
            _log.error("rules of access control from the leader are not used: {error}", error=error)
            return
        try:
            self._note(_record(files, changed_ms))
            self._take(files, changed_ms)
        except (OSError, AccessRulesError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.alarm = f"{self.path} cannot be written: {reason}"
            _log.error("access control follows the leader, but {alarm}", alarm=self.alarm)
        self._looks = look(self.path)

    @property
    def _note_path(self) -> Path:
        return self.path.with_name(self.path.name + _TAKING)

    def _note(self, record: Mapping[str, Any]) -> None:
        """Notes what is about to be written. Commit point: the rename."""
        temporary = self._note_path.with_name(self._note_path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._note_path)

    def _take(self, files: Mapping[str, _File], changed_ms: int) -> None:
        write_folder(self.path, files, changed_ms)
        self._note_path.unlink()

    def _go_on_taking(self) -> None:
        """Ends what a former process began, unless somebody edited a file since."""
        try:
            record = json.loads(self._note_path.read_text(encoding="utf-8"))
            files, changed_ms = _files_of(record), int(record["changed"])
            if newest_file_ms(self.path) > changed_ms:
                _log.warn("{path}: files were edited since, they count", path=self._note_path)
                self._note_path.unlink()
            else:
                self._take(files, changed_ms)
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AccessRulesError) as error:
            raise AccessRulesError(f"{self._note_path}: {error}") from error

    def _set(self, files: dict[str, _File], changed_ms: int) -> None:
        """Puts rules in force.

        Raises:
            AccessRulesError: together they are too many; nothing changed.
        """
        rules, owners = merge({name: rules for name, (rules, _) in files.items()})
        self.rules = rules
        self._files = files
        self._owners = owners
        self._changed_ms = changed_ms
        self.alarm = None


def _told(found: FolderRules) -> dict[str, _File]:
    return {name: (file.rules, file.version) for name, file in found.files.items()}


def _record(files: Mapping[str, _File], changed_ms: int) -> dict[str, Any]:
    rules, version = files[MAIN_FILE]
    record = {
        "kind": "access",
        "rules": rules.to_document(),
        "version": version.to_json(),
        "changed": changed_ms,
    }
    more = {
        name: {"rules": rules.to_document(), "version": version.to_json()}
        for name, (rules, version) in files.items()
        if name != MAIN_FILE
    }
    return {**record, "more": more} if more else record


def _files_of(record: Mapping[str, Any]) -> dict[str, _File]:
    """The files of a record.

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


def _file_of(entry: Mapping[str, Any]) -> _File:
    return parse_rules(entry.get("rules")), DataVersion.from_json(entry.get("version"))
