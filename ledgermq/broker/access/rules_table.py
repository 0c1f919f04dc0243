"""RulesTable: the rules in force on this member, its plain_acl.yml, and the leader's rules.

Whoever changed the rules last is right, by the clock, wherever it was:

- a file that was edited on any member counts there within a few seconds; a leader gives it to all;
- a change by a tool reaches the leader, which gives it to all; each member writes its own file;
- rules from the ledger count when they are newer than the file's last change, so that a record that
  is applied again after a restart does not undo what was edited meanwhile.

A file that cannot be used changes nothing: the rules in force stay, and the log says why.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.broker.access.rules_file import FileRules, read_rules, write_rules
from ledgermq.broker.data_version import DataVersion
from ledgermq.broker.errors import AccessRulesError

# Rules that are written to the ledger in one record.
_RECORD_BYTES_MAX: Final = 2 << 20

_log = Logger()


class RulesTable:
    """The rules in force.

    Invariant: `rules` were read or checked whole; a failure of any kind leaves them as they are.
    """

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        """Binds the file; nothing is read before `load`.

        Args:
            path: plain_acl.yml of this member.
            now_ms: wall clock.
        """
        self.path = path
        self._now_ms = now_ms
        self.rules = AccessRules()
        self.version = DataVersion()
        # When the rules were changed, ms since 1970.
        self._changed_ms = 0
        # What the file looked like when it was last read or written.
        self._looks: object = None
        # Why the file is not what is in force; None while it is.
        self.alarm: str | None = None

    def load(self) -> None:
        """Reads the file at the start.

        Raises:
            AccessRulesError: it cannot be used.
        """
        self._looks = self._look()
        self._take(read_rules(self.path))
        more = self.path.parent / "acl"
        if any(more.rglob("*.yml")) or any(more.rglob("*.yaml")):
            _log.warn("{more} is not read: put its accounts into {path}", more=more, path=self.path)

    def reload(self) -> bool:
        """Reads the file again when it was changed; returns whether other rules are in force."""
        looks = self._look()
        if looks == self._looks:
            return False
        self._looks = looks
        try:
            found = read_rules(self.path)
        except AccessRulesError as error:
            self.alarm = str(error)
            _log.error("the rules of access control stay as they were: {error}", error=error)
            return False
        self.alarm = None
        is_other = found.rules.to_document() != self.rules.to_document()
        self._take(found)
        if is_other:
            self.version = DataVersion(self._changed_ms, self.version.counter + 1)
            _log.info("{path} was read again: {count} accounts", path=self.path, count=self.count)
        return is_other

    @property
    def count(self) -> int:
        """Accounts in force."""
        return len(self.rules.accounts)

    def change(self, rules: AccessRules) -> None:
        """Puts other rules in force on the leader, and into its file.

        Raises:
            AccessRulesError: the file cannot be written, or the rules are too large; nothing
                changed.
        """
        size = len(json.dumps(rules.to_document()))
        if size > _RECORD_BYTES_MAX:
            raise AccessRulesError(f"the rules have {size} bytes, allowed are {_RECORD_BYTES_MAX}")
        changed_ms = max(self._now_ms(), self._changed_ms + 1)
        version = DataVersion(changed_ms, self.version.counter + 1)
        try:
            write_rules(self.path, rules, version)
        except OSError as error:
            raise AccessRulesError(f"{self.path} cannot be written: {error.strerror}") from error
        self._set(rules, version, changed_ms)
        self._looks = self._look()

    # The ledger.

    def to_record(self) -> dict[str, Any]:
        """Returns the rules as they go through the ledger."""
        return {
            "kind": "access",
            "rules": self.rules.to_document(),
            "version": self.version.to_json(),
            "changed": self._changed_ms,
        }

    def follow(self, record: Mapping[str, Any]) -> None:
        """Takes over the leader's rules, unless those here are newer; writes them to the file."""
        changed_ms = record.get("changed")
        if not isinstance(changed_ms, int) or changed_ms <= self._changed_ms:
            return
        try:
            rules = parse_rules(record.get("rules"))
        except AccessRulesError as error:
            _log.error("rules of access control from the leader are not used: {error}", error=error)
            return
        version = DataVersion(changed_ms, DataVersion.from_json(record.get("version")).counter)
        self._set(rules, version, changed_ms)
        try:
            write_rules(self.path, rules, version)
        except OSError as error:
            self.alarm = f"{self.path} cannot be written: {error.strerror}"
            _log.error("access control follows the leader, but {alarm}", alarm=self.alarm)
        self._looks = self._look()

    def _take(self, found: FileRules) -> None:
        self._set(found.rules, found.version, found.changed_ms)
        if found.is_exposed:
            _log.warn("{path} holds secrets and can be read by others: chmod 600", path=self.path)

    def _set(self, rules: AccessRules, version: DataVersion, changed_ms: int) -> None:
        self.rules = rules
        self.version = version
        self._changed_ms = changed_ms
        self.alarm = None

    def _look(self) -> object:
        """What tells a changed file from the one that is known."""
        try:
            status = self.path.stat()
        except OSError as error:
            return error.errno
        return status.st_mtime_ns, status.st_size, status.st_ino
