"""AccountsFile: the file of the name server's accounts, followed while the name server runs.

Only strict YAML is read (access/strict_yaml.py), at most a MiB of it, and only from a file that
nobody but its owner may read or write, since it holds secrets.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from ledgermq.namesrv.accounts import NameAccounts, parse_accounts
from ledgermq.namesrv.errors import AccountsError
from ledgermq.protocol.private_file import PrivateFileError, read_private_file

_FILE_BYTES_MAX: Final = 1 << 20

OnEdited = Callable[[NameAccounts, NameAccounts, str | None], None]

_log = Logger()


class AccountsFile:
    """The accounts in force, and the file that they came from."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            AccountsError: it cannot be read or used; the text names the file.
        """
        self._path = path
        # Told of an edit: the accounts before and after, and why it is not in force; None: nobody
        # wants to know.
        self.on_edited: OnEdited | None = None
        # What told the last state of the file from others, read or not.
        self._look: object = self._looks()
        # Replaced as a whole when the file changed.
        self.accounts: NameAccounts = read_accounts(path)

    def follow(self) -> None:
        """Reads the file again when it changed; one that cannot be used changes nothing, and is
        told once.
        """
        look = self._looks()
        if look == self._look:
            return
        self._look = look
        before, reason = self.accounts, None
        try:
            self.accounts = read_accounts(self._path)
        except AccountsError as error:
            reason = str(error)
            _log.error("the accounts stay as they were: {error}", error=error)
        else:
            count = len(self.accounts.accounts)
            _log.info("{path} was read again: {count} accounts", path=self._path, count=count)
        if self.on_edited is not None:
            self.on_edited(before, self.accounts, reason)

    def _looks(self) -> object:
        try:
            status = self._path.stat()
        except OSError as error:
            return repr(error)
        return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def read_accounts(path: Path) -> NameAccounts:
    """Reads a file of accounts.

    Raises:
        AccountsError: it cannot be read or used; the text names the file, and never shows a secret.
    """
    try:
        data = read_private_file(path, "aclFile", _FILE_BYTES_MAX)
    except PrivateFileError as error:
        raise AccountsError(str(error)) from error
    try:
        return parse_accounts(_yaml().parse_document(data.decode("utf-8")))
    except (ValueError, RecursionError, AccountsError) as error:
        raise AccountsError(f"aclFile {path}: {error}") from error


def _yaml() -> Any:
    """A name server without accounts never loads the parser."""
    return importlib.import_module("ledgermq.access.strict_yaml")
