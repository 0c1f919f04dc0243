"""What the doctor knows of the file system below a store."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ledgermq.cli import doctor, file_systems
from ledgermq.cli.file_systems import Mount, doubts_of, find_mount
from ledgermq.cli.main import main
from tests.unit.cli.test_doctor import findings

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:40 / /data rw,relatime shared:2 - nfs4 nas.example:/export/mq rw,vers=4.2
31 30 0:41 /@mq /data/fast rw,noatime shared:3 master:2 - btrfs /dev/sdb1 rw,ssd,subvol=/@mq
32 27 0:42 / /with\040blank rw - zfs tank/a\040b rw,xattr
33 27 0:43 / /twice rw - tmpfs tmpfs rw
34 33 8:17 / /twice rw - xfs /dev/sdb1 rw
35 27 0:44 / /box rw - fuse.sshfs me@host:/x rw
torn line
36 27 0:45 / /torn rw
"""


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/var/mq/store", "/", "ext4"),
        ("/", "/", "ext4"),
        ("/data", "/data", "nfs4"),
        ("/data/fast/store", "/data/fast", "btrfs"),
        ("/data/faster", "/data", "nfs4"),
        ("/with blank/x", "/with blank", "zfs"),
        ("/twice/x", "/twice", "xfs"),
        ("/torn/x", "/", "ext4"),
    ],
)
def test_the_nearest_and_latest_mount_is_found(path: str, point: str, kind: str) -> None:
    mount = find_mount(Path(path), MOUNTS)
    assert mount is not None
    assert (mount.point, mount.kind) == (point, kind)


def test_no_mount_is_found_where_nothing_is_told() -> None:
    assert find_mount(Path("/x"), "") is None


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("nfs", "network"),
        ("nfs4", "network"),
        ("cifs", "network"),
        ("smb3", "network"),
        ("ceph", "network"),
        ("9p", "network"),
        ("virtiofs", "network"),
        ("fuse", "network"),
        ("fuse.sshfs", "network"),
        ("fuse.glusterfs", "network"),
        ("btrfs", "each block to a new place"),
        ("zfs", "each block to a new place"),
        ("bcachefs", "each block to a new place"),
        ("tmpfs", "memory"),
        ("overlay", "container"),
    ],
)
def test_a_broker_is_warned_of(kind: str, word: str) -> None:
    (text,) = doubts_of(Mount("0:1", "/x", kind, "there"))
    assert word in text
    assert f"{kind} (there)" in text


@pytest.mark.parametrize("kind", ["ext4", "xfs", "ext3", "f2fs", "fuseblk", "a-new-one"])
def test_a_local_disk_is_good(kind: str) -> None:
    assert doubts_of(Mount("0:1", "/x", kind, "/dev/x")) == []


@pytest.mark.parametrize("is_thin", [True, False])
def test_a_device_over_a_file_with_holes_promises_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_thin: bool
) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        os.truncate(file.fileno(), 4 << 20)
        if not is_thin:
            os.posix_fallocate(file.fileno(), 0, 4 << 20)
    device = tmp_path / "dev" / "7:0" / "loop"
    device.mkdir(parents=True)
    (device / "backing_file").write_text(f"{image}\n")
    monkeypatch.setattr(file_systems, "_BLOCK_DEVICES", tmp_path / "dev")
    doubts = doubts_of(Mount("7:0", "/x", "ext4", "/dev/loop0"))
    assert bool(doubts) == is_thin
    assert all(f"{image}: it promises 4 MiB and has 0 MiB" in text for text in doubts)


def test_a_directory_without_reserved_blocks_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int, offset: int, size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(file_systems.os, "posix_fallocate", refuse)
    code, found = findings(capsys, tmp_path)
    assert code == 1
    assert found["file system"]["verdict"] == "failed"
    assert "Operation not supported" in found["file system"]["text"]


@pytest.mark.parametrize(
    ("mounted", "verdict"), [("nfs4 nas:/mq", "warning"), ("ext4 /dev/x", "good")]
)
def test_the_doctor_tells_of_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mounted: str,
    verdict: str,
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"27 1 254:0 / {tmp_path.resolve()} rw - {mounted} rw\n")
    monkeypatch.setattr(doctor, "MOUNTS", mounts)
    code, found = findings(capsys, tmp_path / "store")
    assert code == 0
    assert found["file system"]["verdict"] == verdict
    assert mounted.split()[1] in found["file system"]["text"]


def test_a_plain_log_elsewhere_is_looked_at_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    log = tmp_path / "log"
    log.mkdir()
    mounts.write_text(
        f"27 1 254:0 / {tmp_path.resolve()} rw - ext4 /dev/x rw\n"
        f"28 27 0:9 / {log.resolve()} rw - cifs //nas/mq rw\n"
    )
    monkeypatch.setattr(doctor, "MOUNTS", mounts)
    words = ["--json", f"storePathRootDir={tmp_path / 'store'}", "brokerIP1=127.0.0.1"]
    main(["doctor", *words, f"storePathCommitLog={log}"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    verdicts = [one["verdict"] for one in found if one["check"] == "file system"]
    assert verdicts == ["good", "warning"]
