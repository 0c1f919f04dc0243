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

Files are written by the keeper, once the broker runs (`write_by`). The leader's rules are in force
before they are in the files, a tool's change after. While something is being written, nobody looks
whether files were edited: that is done at the next look.

    {"kind": "access", "rules": DOCUMENT, "version": VERSION, "changed": MS,
     "more": {"acl/a.yml": {"rules": DOCUMENT, "version": VERSION}}}

`more` is left out when there is nothing in the folder.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.broker.access.rules_file import write_rules
from ledgermq.broker.access.rules_folder import (
    MAIN_FILE,
    FolderRules,
    check_file_name,
    file_path,
    folder_writes,
    look,
    merge,
    newest_file_ms,
    read_folder,
    set_time,
)
from ledgermq.dledger.disk_job import Begin, DiskJob, do_now
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError

# Rules that are written to the ledger in one record.
_RECORD_BYTES_MAX: Final = 2 << 20
# Behind the name of plain_acl.yml: the leader's rules while they are written to the files.
_TAKING: Final = ".taking"

# Rules and version of one file.
_File = tuple[AccessRules, DataVersion]
_Edit = Callable[[AccessRules], AccessRules]

_log = Logger()


class Keeper(Protocol):
    """Does what may wait for the disk, see `dledger/store/keeper.py`."""

    def run(self, begin: Begin) -> Deferred[None]: ...

    def run_steps(self, steps: Iterator[Callable[[], None]]) -> Deferred[None]: ...


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
        # Who writes the files; None: the caller, as before the broker runs.
        self._keeper: Keeper | None = None
        # Changes by tools, and rules of the leader, that are on their way to the files.
        self._changing_count = self._taking_count = 0

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

    def write_by(self, keeper: Keeper) -> None:
        """Has the files written by the keeper from now on, so that nobody waits for the disk."""
        self._keeper = keeper

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
        if self._changing_count or self._taking_count:
            return False
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

    def change_account(self, access_key: str, edit: _Edit) -> Deferred[None]:
        """Changes the file that an account is of, plain_acl.yml for one that is new.

        Returns:
            As `change`.
        """
        return self._change(lambda: self._owners.get(access_key, MAIN_FILE), edit)

    def delete_account(self, access_key: str) -> Deferred[None]:
        """Deletes an account.

        Returns:
            As `change`; fails also when a second file has it, which would count then.
        """

        def find_name() -> str:
            holders = [
                name for name, (rules, _) in self._files.items() if access_key in rules.accounts
            ]
            if len(holders) > 1:
                paths = ", ".join(str(file_path(self.path, name)) for name in sorted(holders))
                raise AccessRulesError(f"several files have the account: {paths}; delete it there")
            return self._owners.get(access_key, MAIN_FILE)

        return self._change(find_name, lambda rules: rules.without_account(access_key))

    def change(self, edit: _Edit, path: str | None = None) -> Deferred[None]:
        """Changes one file, plain_acl.yml when none is named, and puts it in force on the leader.

        Args:
            edit: makes the new rules of that file, when those before are known.
            path: of one of the files, whole.

        Returns:
            Fires when the file is on the disk and its rules are in force. Fails with
            AccessRulesError when there is no such file, it cannot be written, the rules are too
            large, or others came from a leader meanwhile; nothing changed then.
        """

        def find_name() -> str:
            known = {str(file_path(self.path, name)): name for name in self._files}
            if path and path not in known:
                raise AccessRulesError(f"{path[:255]} is none of {', '.join(sorted(known))}")
            return known[path] if path else MAIN_FILE

        return self._change(find_name, edit)

    def _change(self, find_name: Callable[[], str], edit: _Edit) -> Deferred[None]:
        refusals: list[Exception] = []

        def begin() -> DiskJob | None:
            try:
                return self._begin_change(find_name(), edit, refusals)
            except Exception as error:
                # It is the change that is bad: the keeper would take it for the disk.
                refusals.append(error)
                return None

        def ended(result: None | Failure) -> None | Failure:
            self._changing_count -= 1
            return Failure(refusals[0]) if refusals else result

        self._changing_count += 1
        if self._keeper is None:
            do_now(begin())
            written: Deferred[Any] = succeed(None)
        else:
            written = self._keeper.run(begin)
        return written.addBoth(ended)

    def _begin_change(self, name: str, edit: _Edit, refusals: list[Exception]) -> DiskJob:
        """Begins to write the changed file; its job notes why it was not written.

        Raises:
            AccessRulesError: nothing is to be written.
        """
        if self._taking_count:
            raise AccessRulesError("the leader's rules are being written to the files, try again")
        before, version = self._files[name]
        rules = edit(before)
        changed_before_ms = self._changed_ms
        changed_ms = max(self._now_ms(), changed_before_ms + 1)
        newer = DataVersion(changed_ms, version.counter + 1)
        files = {**self._files, name: (rules, newer)}
        size = len(json.dumps(_record(files, changed_ms)))
        if size > _RECORD_BYTES_MAX:
            raise AccessRulesError(f"the rules have {size} bytes, allowed are {_RECORD_BYTES_MAX}")
        merge({name: rules for name, (rules, _) in files.items()})
        main_path, path = self.path, file_path(self.path, name)
        looks: list[object] = []

        def run() -> None:
            try:
                write_rules(path, rules, newer, changed_ms)
                set_time(main_path, changed_ms)
                looks.append(look(main_path))
            except AccessRulesError as error:
                refusals.append(error)
            except OSError as error:
                reason = f"{path} cannot be written: {error.strerror}"
                refusals.append(AccessRulesError(reason))

        def end() -> None:
            if refusals:
                return
            if self._changed_ms != changed_before_ms:
                # They are written next, over this change.
                refusals.append(AccessRulesError("other rules came from a leader meanwhile"))
                return
            self._set(files, changed_ms)
            [self._looks] = looks

        return DiskJob(run, end)

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
        failures: list[Exception] = []
        note = partial(_note, self._note_path, _record(files, changed_ms))
        steps = _guarded([note, *self._writes(files, changed_ms)], failures)
        self._taking_count += 1
        if self._keeper is None:
            for step in steps:
                step()
            written: Deferred[Any] = succeed(None)
        else:
            # Asked for in the turn that applied the record: a flush whose mark says that the record
            # need not be applied again comes behind, and the note is on the disk before it.
            written = self._keeper.run_steps(steps)
        written.addBoth(self._taken, failures, changed_ms)

    def _taken(
        self, result: None | Failure, failures: Sequence[Exception], changed_ms: int
    ) -> None:
        """Ends `follow`; an alarm is about what is in force now."""
        self._taking_count -= 1
        error = result.value if isinstance(result, Failure) else next(iter(failures), None)
        if error is not None and changed_ms == self._changed_ms:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.alarm = f"{self.path} cannot be written: {reason}"
            _log.error("access control follows the leader, but {alarm}", alarm=self.alarm)
        self._looks = look(self.path)

    @property
    def _note_path(self) -> Path:
        return self.path.with_name(self.path.name + _TAKING)

    def _writes(self, files: Mapping[str, _File], changed_ms: int) -> list[Callable[[], None]]:
        """What brings noted rules to the files, in this order."""
        return [*folder_writes(self.path, files, changed_ms), self._note_path.unlink]

    def _go_on_taking(self) -> None:
        """Ends what a former process began, unless somebody edited a file since."""
        try:
            record = json.loads(self._note_path.read_text(encoding="utf-8"))
            files, changed_ms = _files_of(record), int(record["changed"])
            if newest_file_ms(self.path) > changed_ms:
                _log.warn("{path}: files were edited since, they count", path=self._note_path)
                self._note_path.unlink()
            else:
                for write in self._writes(files, changed_ms):
                    write()
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


def _note(path: Path, record: Mapping[str, Any]) -> None:
    """Notes what is about to be written. Commit point: the rename."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _guarded(
    steps: Sequence[Callable[[], None]], failures: list[Exception]
) -> Iterator[Callable[[], None]]:
    """Yields steps that are left out behind one that failed; the failure is noted, not raised."""

    def run(step: Callable[[], None]) -> None:
        try:
            if not failures:
                step()
        except (OSError, AccessRulesError) as error:
            failures.append(error)

    return (partial(run, step) for step in steps)


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
