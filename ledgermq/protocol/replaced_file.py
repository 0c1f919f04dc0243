"""Files that are replaced whole, of this user alone; may wait for the disk."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MODE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(
    path: Path,
    parts: Iterable[bytes],
    *,
    partial: Path | None = None,
    changed_ns: int | None = None,
) -> None:
    """Puts a new file in the place of another one, or of none.

    Commit point: the rename; on return it is on the disk.

    Args:
        path: of the file; its folder is there.
        parts: of its content.
        partial: beside it, where the new file is written; None: its name with `.tmp` behind. What
            stands there is removed, and never written to: it may be a link.
        changed_ns: what the file says of when it was changed, ns since 1970; None: now.

    Raises:
        OSError: the old file is untouched, or, when only the last sync failed, may be either.
    """
    partial = path.with_name(path.name + ".tmp") if partial is None else partial
    partial.unlink(missing_ok=True)
    handle = os.open(partial, _FLAGS, _MODE)
    with os.fdopen(handle, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        if changed_ns is not None:
            os.utime(handle, ns=(changed_ns, changed_ns))
        os.fsync(handle)
    partial.replace(path)
    _sync_names(path.parent)


def _sync_names(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
