"""Which file system a directory lies on, and what of a broker's needs it may not give.

A broker counts on two things: a sync that returned means that the bytes are on a disk, and blocks
that were reserved are there when they are written. A local ext4 or xfs gives both.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

MOUNTS: Final = Path("/proc/self/mountinfo")
_BLOCK_DEVICES: Final = Path("/sys/dev/block")

_NETWORK: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "lustre", "ncpfs", "nfs",
    "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs",
})  # fmt: skip
_COPY_ON_WRITE: Final = frozenset({"bcachefs", "btrfs", "nilfs2", "zfs"})
_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
# What mountinfo writes for blanks and the like.
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_PROBE_BYTES: Final = 8192


class Mount(NamedTuple):
    """One line of mountinfo, as far as it is used."""

    # Major and minor number, as "8:1".
    device: str
    point: str
    kind: str
    # A device, or a server with its path.
    source: str


def find_mount(path: Path, mountinfo: str) -> Mount | None:
    """Returns the mount that a directory lies on, None when the text does not tell.

    Args:
        path: absolute, without links.
        mountinfo: as /proc/self/mountinfo has it: what was mounted later stands behind.
    """
    found: Mount | None = None
    for line in mountinfo.splitlines():
        left, mark, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not mark or len(fields) < 5 or len(kinds) < 2:
            continue
        mount = Mount(fields[2], _unescaped(fields[4]), kinds[0], _unescaped(kinds[1]))
        if path.is_relative_to(mount.point):
            is_nearer = found is None or len(mount.point) >= len(found.point)
            found = mount if is_nearer else found
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def doubts_of(mount: Mount) -> list[str]:
    """Returns what a broker cannot count on there, for people; empty for a usual local disk."""
    place = f"{mount.kind} ({mount.source})"
    if mount.kind in _NETWORK or (mount.kind.startswith("fuse") and mount.kind != "fuseblk"):
        return [
            f"{place} is a network file system, or one of a program: a sync is worth what its other"
            " side makes of it, another host may write the same files, and a short loss of the"
            " connection stops the broker; take a local disk"
        ]
    if mount.kind in _MEMORY:
        return [f"{place} is memory: all is gone with the machine, whatever flushDiskType says"]
    if mount.kind == "overlay":
        return [f"{place} is a layer of a container, and goes with it; mount a volume there"]
    if mount.kind in _COPY_ON_WRITE:
        return [
            f"{place} writes each block to a new place: room that was reserved is none, a full disk"
            " is told by a write, and the member waits then until there is room; keep some free,"
            " take no snapshots that stay, or switch it off for this directory (btrfs: chattr +C)"
        ]
    return _doubts_of_device(mount)


def _doubts_of_device(mount: Mount) -> list[str]:
    """A loop device over a file with holes has no more room than the disk below it."""
    try:
        backing = Path((_BLOCK_DEVICES / mount.device / "loop/backing_file").read_text().strip())
        found = backing.stat()
    except OSError:
        return []
    if found.st_blocks * 512 >= found.st_size:
        return []
    return [
        f"{mount.kind} ({mount.source}) is a file with holes, {backing}: it promises"
        f" {found.st_size // 2**20} MiB and has {found.st_blocks * 512 // 2**20} MiB"
    ]


def reserve_blocks(directory: Path) -> None:
    """Makes a file with reserved blocks in a directory, as a broker does, and removes it.

    Raises:
        OSError: that is not possible there.
    """
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, _PROBE_BYTES)
