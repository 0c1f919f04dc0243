"""Acceptance: an operator has the next start take the state's files as they are.

    config/acceptState.json    {"files": {"topics.json": "0a1b2c3d", "delayOffset.json": "missing"}}

`ledgermq store accept-state` writes it, with the CRC-32C of each file; the start that has taken
them removes it. A file that was changed in between is not taken. This is for files that were edited
on purpose, for those of a Java broker that ran here since, and for a group in which no member
has a state that can be trusted: what the files lack is lost then.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from ledgermq.broker.storage.state_files import StateFile, parse_object
from ledgermq.broker.storage.state_loading import checksum_of
from ledgermq.protocol.replaced_file import replace_file
from ledgermq.state.errors import StateFileError

FILE_NAME: Final = "acceptState.json"
_FILE_BYTES_MAX: Final = 1 << 16

_log = Logger()


class Acceptance:
    """The file in one `config` folder."""

    def __init__(self, folder: Path) -> None:
        """Reads nothing yet."""
        self._folder = folder
        self.path = folder / FILE_NAME

    def read(self) -> dict[str, str]:
        """Returns checksums by the names of the files that are to be taken, none as a rule."""
        file = StateFile(self.path, bytes_max=_FILE_BYTES_MAX)
        raw = file.read()
        if raw is None:
            return {}
        try:
            if isinstance(raw, OSError):
                raise ValueError(raw.strerror)
            files = parse_object(raw).get("files")
            return {str(name): str(checksum) for name, checksum in dict(files or {}).items()}
        except (TypeError, ValueError) as error:
            _log.error("{path} is not used: {error}", path=str(self.path), error=error)
            return {}

    def write(self, names: Iterable[str]) -> dict[str, str]:
        """Has the next start take these files as they are now; returns what was written.

        Raises:
            StateFileError: one of them cannot be read.
            OSError: the disk refuses.
        """
        found: dict[str, str] = {}
        for name in sorted(names):
            file = StateFile(self._folder / name)
            raw = file.read()
            if isinstance(raw, OSError):
                raise StateFileError(f"cannot read {file}: {raw.strerror}")
            if raw is not None:
                try:
                    parse_object(raw)
                except ValueError as error:
                    raise StateFileError(f"cannot read {file}: {error}") from error
            found[name] = checksum_of(raw)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(self.path, [json.dumps({"files": found}, indent=1).encode()])
        return found

    def remove(self) -> None:
        """Forgets it: a start has taken the files, and has written them with its seals."""
        self.path.unlink(missing_ok=True)
