"""Who else may read or change what lies in a store directory: looked at once, before it is opened.

What LedgerMQ makes is for its user alone (files 0600, folders 0700). A directory that was made by
hand, by an older program or by Java may be open to others; nothing of that is changed here, since
somebody may rely on it, but it is told. A link that another user has put there is refused: it could
lead anywhere this process may write.
"""

import os
import stat
from collections import deque
from collections.abc import Collection

from ledgermq.commitlog.errors import StoreUnsafeError

# A store has a file for each queue: so many are looked at, folders near the root first.
ENTRIES_MAX = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ROOT_USER = 0


def find_open_to_others(root: str, trusted: Collection[int] | None = None) -> str | None:
    """
    Args:
        root: of the store; need not be there.
        trusted: ids of users whose links are followed; None: this one and root.

    Returns:
        What others may read or change, with the remedy, for a log; None when nothing was seen.

    Raises:
        StoreUnsafeError: there is a link of somebody else.
    """
    owners = {os.geteuid(), _ROOT_USER} if trusted is None else trusted
    try:
        is_open = bool(os.stat(root).st_mode & _OTHERS)
    except FileNotFoundError:
        return None
    found = [root] if is_open else []
    folders = deque([root])
    left = ENTRIES_MAX
    while folders and left > 0:
        try:
            entries = sorted(os.scandir(folders.popleft()), key=lambda entry: entry.name)[:left]
        except OSError:
            # Whoever opens it says why it cannot be read.
            continue
        left -= len(entries)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                if status.st_uid not in owners:
                    raise StoreUnsafeError(entry.path, status.st_uid)
                continue
            if status.st_mode & _OTHERS:
                found.append(entry.path)
            if stat.S_ISDIR(status.st_mode):
                folders.append(entry.path)
    # Inside of a folder that is closed nobody else gets at anything.
    if not is_open:
        return None
    return (
        f"others may enter the store, {len(found)} of its files and folders are open to them:"
        f" chmod -R go-rwx {root}"
    )
