"""TwinFile: a small JSON object kept in two files, each with a seal, so that one may be damaged.

    NAME        what other programs read
    NAME.copy   the same bytes

Both are replaced by each write, one after the other, and name the number of the write. A reading
takes the newest that fits its seal, so that noise in one of the two, a truncated file or an older
copy lose nothing. A file without a seal is taken where there is no copy: a former program, or
upstream's, wrote it. Both calls wait for the disk.
"""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ledgermq.protocol.file_seal import SEAL_BYTES_MAX, BrokenSealError, read_seal, sealed
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.protocol.replaced_file import replace_file

_ID_BYTES: Final = 8


class TwinFile:
    """Both files of one name.

    Attributes:
        notes: what was not used by the last reading and why, for a log.
    """

    def __init__(
        self, path: Path, bytes_max: int, owner: str | None = None, *, is_shared: bool = False
    ) -> None:
        """Reads nothing yet.

        Args:
            path: of the file.
            bytes_max: of what is read, without its seal.
            owner: name of the writer; None: the first writer draws one.
            is_shared: whether another process may write the same file.
        """
        self._path = path
        self.copy_path = path.with_name(path.name + ".copy")
        self._bytes_max = bytes_max + SEAL_BYTES_MAX
        self._is_drawn = owner is None
        self._owner = secrets.token_hex(_ID_BYTES) if owner is None else owner
        self._partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        if not is_shared:
            self._partial = path.with_name(f"{path.name}.tmp")
        # Of the last write.
        self._number = 0
        self.notes: list[str] = []

    def read(self) -> bytes | None:
        """Returns the content, None when there is none.

        Raises:
            OSError: a file cannot be read.
            ValueError: there is one, and none of the two can be used; nothing was changed.
        """
        self.notes = []
        main = self._raw(self._path)
        if main is not None and not self.copy_path.exists() and self._is_unsealed(main):
            return main
        found: list[tuple[int, str, bytes]] = []
        for path in (self._path, self.copy_path):
            raw = self._raw(path)
            try:
                seal = None if raw is None else read_seal(raw)
                if raw is None:
                    raise BrokenSealError("it is missing")
                if seal is None:
                    raise BrokenSealError("no seal: it is damaged, or another program wrote it")
                if not self._is_drawn and seal.owner != self._owner:
                    raise BrokenSealError(f"it is one of {seal.owner!r}, not of {self._owner!r}")
                found.append((seal.version, seal.owner, raw))
            except ValueError as error:
                self.notes.append(f"{path}: {error}")
        if not found:
            if main is None and not self.copy_path.exists():
                self.notes = []
                return None
            raise ValueError("; ".join(self.notes))
        if len({owner for _, owner, _ in found}) > 1:
            raise ValueError(
                f"{self._path} and {self.copy_path} are those of two different programs: remove"
                " the wrong one"
            )
        self._number, self._owner, content = max(found)
        if len(found) > 1 and found[0][0] != found[1][0]:
            older = self._path if found[0][0] < found[1][0] else self.copy_path
            self.notes.append(f"{older}: it is an older copy")
        return content

    def write(self, parts: Iterable[bytes]) -> None:
        """Replaces both files, durably.

        Args:
            parts: of the content, a JSON object.

        Raises:
            OSError: the former content is still there, or the new one is.
        """
        self._number += 1
        content = [sealed(list(parts), self._owner, self._number)]
        replace_file(self._path, content, partial=self._partial)
        replace_file(self.copy_path, content, partial=self._partial)

    def _raw(self, path: Path) -> bytes | None:
        try:
            return read_regular_file(path, self._bytes_max)[0]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _is_unsealed(self, raw: bytes) -> bool:
        try:
            return read_seal(raw) is None
        except BrokenSealError:
            return False
