"""RulesTable: the rules in force on this member, its files, and the leader's rules.

The files are plain_acl.yml and those of the folder beside it (`rules_folder.py`). Whoever changed
them last is right, by the clock, wherever it was:

- a file that was edited, added or removed on any member counts there within a few seconds; a leader
  gives all of them to all;
- a change by a tool reaches the leader, which proposes it: when it is committed, it is in force on
  every member, on the leader by the same line, and each member writes its own files;
- rules from the ledger count when they are newer than the last change of the files, so that a
  record that is applied again after a restart does not undo what was edited meanwhile.

Members share their rules when they have the secret of the group: in the ledger they stand sealed
(`rules_seal.py`). A group of several members without one shares nothing: each goes by its own
files, and tools change none of them. A member alone has its files, and tells the ledger nothing.
Rules of the leader that do not open here change nothing: those in force stay, an account that is
only in the others is refused, and operators are alarmed. They are kept as they came: told on by
this member if it leads, and read at its next start, with the secret that it has then.

A file that cannot be used changes nothing: the rules in force stay, and the log says why. Files of
the leader are noted as a whole before the first of them is replaced, so that a member that is
killed in between goes on with it at its next start.

Files are written by the keeper, once the broker runs (`write_by`). Rules of the ledger are in force
before they are in the files; where nothing is shared, the file is where a tool's change is kept,
and it is in force when it is there. While something is being written, nobody looks whether files
were edited: that is done at the next look.
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

from ledgermq.broker.access.rules import AccessRules
from ledgermq.broker.access.rules_file import content_of, write_rules
from ledgermq.broker.access.rules_folder import (
    MAIN_FILE,
    FolderRules,
    file_path,
    folder_writes,
    look,
    merge,
    newest_file_ms,
    read_folder,
    set_time,
)
from ledgermq.broker.access.rules_record import RulesFile, files_of, record_of, write_note
from ledgermq.dledger.disk_job import Begin, DiskJob, do_now
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.state.access_changes import Make
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError, BrokerError
from ledgermq.state.under_way import OnCommitted

# Rules that are written to the ledger in one record.
_RECORD_BYTES_MAX: Final = 2 << 20
# Behind the name of plain_acl.yml: the leader's rules while they are written to the files.
_TAKING: Final = ".taking"

# Has rules committed, see `state/access_changes.py`.
_Propose = Callable[[Make, OnCommitted], None]
_Edit = Callable[[AccessRules], AccessRules]
OnEdited = Callable[[AccessRules, AccessRules, str | None], None]
_Files = Mapping[str, RulesFile]
_FindName = Callable[[_Files], str]

_log = Logger()


class Keeper(Protocol):
    """Does what may wait for the disk, see `dledger/store/keeper.py`."""

    def run(self, begin: Begin) -> Deferred[None]: ...

    def run_steps(self, steps: Iterator[Callable[[], None]]) -> Deferred[None]: ...


class Seal(Protocol):
    """Makes records that only members of the group open, see `rules_seal.py`."""

    def seal(self, rules: Mapping[str, Any], changed_ms: int) -> dict[str, Any]: ...

    def open(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], bool]: ...


class RulesTable:
    """The rules in force.

    Invariant: `rules` were read or checked whole; a failure of any kind leaves them as they are.
    """

    def __init__(
        self,
        path: Path,
        now_ms: Callable[[], int],
        *,
        seal: Seal | None = None,
        closed_because: str | None = None,
    ) -> None:
        """Binds the files; nothing is read before `load`.

        Args:
            path: plain_acl.yml of this member.
            now_ms: wall clock.
            seal: that of the group's members; None: nothing is shared with them.
            closed_because: why tools may change nothing; None where they may.
        """
        self.path = path
        self._now_ms = now_ms
        self._seal = seal
        self._closed_because = closed_because
        # The record of what is in force, sealed with the group's present secret; None: not sealed
        # yet. And one of the leader that is newer, and does not open here.
        self._sealed: Mapping[str, Any] | None = None
        self._unopened: Mapping[str, Any] | None = None
        # All files together.
        self.rules = AccessRules()
        # By name, and which of them each account is of.
        self._files: dict[str, RulesFile] = {MAIN_FILE: (AccessRules(), DataVersion())}
        self._owners: dict[str, str] = {}
        # When the rules were changed, ms since 1970.
        self._changed_ms = 0
        # What the files looked like when they were last read or written.
        self._looks: object = None
        # Why the files are not what is in force; None while they are.
        self.alarm: str | None = None
        # Who writes the files; None: the caller, as before the broker runs.
        self._keeper: Keeper | None = None
        # Takes changes by tools where rules are shared; None: nobody does, or not yet.
        self._propose: _Propose | None = None
        # Told of files that somebody has edited: the rules before and after, and why those that
        # were found are not in force; None: nobody wants to know.
        self.on_edited: OnEdited | None = None
        # Told that other rules are in force, whoever changed them; None: nobody wants to know.
        self.on_other: Callable[[], None] | None = None
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

    def propose_by(self, propose: _Propose) -> None:
        """Has changes by tools committed from now on, where members share their rules."""
        if self._seal is not None:
            self._propose = propose

    # The files.

    def load(self) -> None:
        """Reads the files at the start.

        Raises:
            AccessRulesError: they cannot be used.
        """
        unopened = self._go_on_taking()
        self._looks = look(self.path)
        found = read_folder(self.path)
        self._set(_told(found), found.changed_ms)
        self._warn(found)
        if unopened is not None:
            self._keep_unopened(*unopened)

    def reload(self) -> bool:
        """Reads the files again when one was changed; returns whether other rules are in force."""
        if self._changing_count or self._taking_count:
            return False
        looks = look(self.path)
        if looks == self._looks:
            return False
        self._looks = looks
        before = self.rules
        try:
            found = read_folder(self.path)
            files, changed_ms, is_other = self._newer(found)
            self._set(files, changed_ms)
        except AccessRulesError as error:
            self.alarm = str(error)
            _log.error("the rules of access control stay as they were: {error}", error=error)
            self._edited(before, str(error))
            return False
        self._warn(found)
        if changed_ms > found.changed_ms:
            self._keep_time(changed_ms)
        if is_other:
            _log.info("{path} was read again: {count} accounts", path=self.path, count=self.count)
            self._edited(before, None)
        return is_other

    def _edited(self, before: AccessRules, reason: str | None) -> None:
        if self.on_edited is not None:
            self.on_edited(before, self.rules, reason)

    def _newer(self, found: FolderRules) -> tuple[dict[str, RulesFile], int, bool]:
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
        return self._change(lambda files: _owner(files, access_key), edit)

    def delete_account(self, access_key: str) -> Deferred[None]:
        """Deletes an account.

        Returns:
            As `change`; fails also when a second file has it, which would count then.
        """

        def find_name(files: _Files) -> str:
            holders = [name for name, (rules, _) in files.items() if access_key in rules.accounts]
            if len(holders) > 1:
                paths = ", ".join(str(file_path(self.path, name)) for name in sorted(holders))
                raise AccessRulesError(f"several files have the account: {paths}; delete it there")
            return _owner(files, access_key)

        return self._change(find_name, lambda rules: rules.without_account(access_key))

    def change(self, edit: _Edit, path: str | None = None) -> Deferred[None]:
        """Changes one file, plain_acl.yml when none is named, and puts it in force on the leader.

        Args:
            edit: makes the new rules of that file, when those before are known.
            path: of one of the files, whole.

        Returns:
            Fires when the rules are in force: committed, or on the disk where nothing is shared.
            Fails with AccessRulesError when there is no such file, it cannot be written, or the
            rules are too large; nothing changed then. Another BrokerError is that of the log;
            CommitTimeoutError says that they may come yet.
        """

        def find_name(files: _Files) -> str:
            known = {str(file_path(self.path, name)): name for name in files}
            if path and path not in known:
                raise AccessRulesError(f"{path[:255]} is none of {', '.join(sorted(known))}")
            return known[path] if path else MAIN_FILE

        return self._change(find_name, edit)

    def _change(self, find_name: _FindName, edit: _Edit) -> Deferred[None]:
        if self._propose is None:
            return self._write_change(find_name, edit)
        told: Deferred[None] = Deferred()

        def done(error: BrokerError | None) -> None:
            if error is None:
                told.callback(None)
            else:
                told.errback(error)

        self._propose(partial(self._record_with, find_name, edit), done)
        return told

    def _record_with(
        self, find_name: _FindName, edit: _Edit, coming: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Returns the record of a change of the rules in force, or of those that are on their way.

        Raises:
            AccessRulesError: nothing is to be changed.
        """
        self._check_open()
        assert self._seal is not None
        files, changed_ms = self._files, self._changed_ms
        if coming is not None and coming["changed"] > changed_ms:
            files, changed_ms = self._opened(coming)[0], coming["changed"]
        files, changed_ms, name = self._changed(files, changed_ms, find_name, edit)
        content_of(file_path(self.path, name), *files[name])
        return self._seal.seal(record_of(files), changed_ms)

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise AccessRulesError(self._closed_because)
        if self._unopened is not None:
            raise AccessRulesError(f"nothing is changed here: {self.alarm}")

    def _changed(
        self, files: _Files, changed_before_ms: int, find_name: _FindName, edit: _Edit
    ) -> tuple[dict[str, RulesFile], int, str]:
        """Returns files with a change in one of them, when it is made, and the name of that file.

        Raises:
            AccessRulesError: there is no such file, or the rules cannot be so.
        """
        name = find_name(files)
        before, version = files[name]
        rules = edit(before)
        changed_ms = max(self._now_ms(), changed_before_ms + 1)
        newer = DataVersion(changed_ms, version.counter + 1)
        changed = {**files, name: (rules, newer)}
        size = len(json.dumps(record_of(changed)))
        if size > _RECORD_BYTES_MAX:
            raise AccessRulesError(f"the rules have {size} bytes, allowed are {_RECORD_BYTES_MAX}")
        merge({one: rules for one, (rules, _) in changed.items()})
        return changed, changed_ms, name

    def _write_change(self, find_name: _FindName, edit: _Edit) -> Deferred[None]:
        """Changes a file, and puts it in force when it is written.

        That is where nothing is shared, so rules of a leader do not come in between.
        """
        refusals: list[Exception] = []

        def begin() -> DiskJob | None:
            try:
                return self._begin_change(find_name, edit, refusals)
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

    def _begin_change(
        self, find_name: _FindName, edit: _Edit, refusals: list[Exception]
    ) -> DiskJob:
        """Begins to write the changed file; its job notes why it was not written.

        Raises:
            AccessRulesError: nothing is to be written.
        """
        self._check_open()
        files, changed_ms, name = self._changed(self._files, self._changed_ms, find_name, edit)
        rules, newer = files[name]
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
            if not refusals:
                self._set(files, changed_ms)
                [self._looks] = looks

        return DiskJob(run, end)

    # The ledger.

    def to_record(self) -> Mapping[str, Any] | None:
        """Returns the rules as they go through the ledger; None where they are not shared."""
        if self._seal is None or self._unopened is not None:
            return self._unopened
        if self._sealed is None:
            self._sealed = self._seal.seal(record_of(self._files), self._changed_ms)
        return self._sealed

    def follow(self, record: Mapping[str, Any]) -> None:
        """Takes over the leader's rules, unless those here are newer; writes them to the files."""
        changed_ms = record.get("changed")
        if type(changed_ms) is not int or changed_ms <= self._changed_ms:
            return
        if not isinstance(record.get("sealed"), str):
            _log.error("rules of access control that nobody has sealed are left out")
            return
        record = {"kind": "access", "changed": changed_ms, "sealed": record["sealed"]}
        steps: list[Callable[[], None]] = [partial(write_note, self._note_path, record)]
        try:
            files, is_present = self._opened(record)
            self._set(files, changed_ms)
            self._sealed = record if is_present else None
            steps += self._writes(files, changed_ms)
        except AccessRulesError as error:
            if self._unopened is not None and self._unopened == record:
                # Told again, as from time to time.
                return
            self._keep_unopened(record, error)
        self._write(steps, changed_ms)

    def _opened(self, record: Mapping[str, Any]) -> tuple[dict[str, RulesFile], bool]:
        """The files in a record, and whether it has the group's present secret.

        Raises:
            AccessRulesError: it does not open here, or holds no files.
        """
        if self._seal is None:
            raise AccessRulesError(
                "other members share their rules, this one has no secret of the group"
                " (key dLegerGroupSecretFile)"
            )
        rules, is_present = self._seal.open(record)
        return files_of(rules), is_present

    def _keep_unopened(self, record: Mapping[str, Any], error: AccessRulesError) -> None:
        self._unopened = record
        self.alarm = f"the leader's rules of access control are not in force here: {error}"
        _log.error("{alarm}", alarm=self.alarm)

    def _write(self, tasks: Sequence[Callable[[], None]], changed_ms: int) -> None:
        failures: list[Exception] = []
        steps = _guarded(tasks, failures)
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

    def _writes(self, files: Mapping[str, RulesFile], changed_ms: int) -> list[Callable[[], None]]:
        """What brings noted rules to the files, in this order."""
        return [*folder_writes(self.path, files, changed_ms), self._note_path.unlink]

    def _go_on_taking(self) -> tuple[Mapping[str, Any], AccessRulesError] | None:
        """Ends what a former process began, unless somebody edited a file since.

        Returns:
            The noted record, and why it does not open; None when nothing is left to do.
        """
        try:
            record = json.loads(read_regular_file(self._note_path, 2 * _RECORD_BYTES_MAX)[0])
            changed_ms = int(record["changed"])
            if newest_file_ms(self.path) > changed_ms:
                _log.warn("{path}: files were edited since, they count", path=self._note_path)
                self._note_path.unlink()
                return None
            try:
                files, _ = self._opened(record)
            except AccessRulesError as error:
                return record, error
            for write in self._writes(files, changed_ms):
                write()
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AccessRulesError) as error:
            raise AccessRulesError(f"{self._note_path}: {error}") from error
        return None

    def _set(self, files: dict[str, RulesFile], changed_ms: int) -> None:
        """Puts rules in force.

        Raises:
            AccessRulesError: together they are too many; nothing changed.
        """
        rules, owners = merge({name: rules for name, (rules, _) in files.items()})
        is_other = rules != self.rules
        self.rules = rules
        self._files = files
        self._owners = owners
        self._changed_ms = changed_ms
        self._sealed = self._unopened = None
        self.alarm = None
        if is_other and self.on_other is not None:
            self.on_other()


def _owner(files: _Files, access_key: str) -> str:
    """Which file an account is of; plain_acl.yml for one that is new."""
    _, owners = merge({name: rules for name, (rules, _) in files.items()})
    return owners.get(access_key, MAIN_FILE)


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


def _told(found: FolderRules) -> dict[str, RulesFile]:
    return {name: (file.rules, file.version) for name, file in found.files.items()}
