"""Which files are taken as secret."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.protocol.private_file import PrivateFileError, read_private_file

_READ = """
import os, sys
from pathlib import Path
from ledgermq.protocol.private_file import PrivateFileError, read_private_file
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(10001)
try:
    print(read_private_file(Path(sys.argv[1]), "the secret", 100).decode())
except PrivateFileError as error:
    print(error)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that other users enter: pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_what_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"x")
    file.chmod(mode)
    with pytest.raises(PrivateFileError, match=f"has mode {mode:04o}: others may read"):
        read_private_file(file, "the secret", 100)
    file.chmod(0o600)
    assert read_private_file(file, "the secret", 100) == b"x"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to other users")
@pytest.mark.parametrize(
    ("owner", "group", "own_group", "mode", "is_read"),
    [
        (0, 10001, 10001, 0o440, True),
        (0, 10001, 10001, 0o640, True),
        (0, 10001, 10001, 0o460, False),
        (0, 10001, 10001, 0o444, False),
        (10001, 10001, 10001, 0o440, False),
        (10001, 0, 0, 0o440, False),
    ],
)
def test_root_may_give_a_file_to_the_group_of_a_program(
    open_folder: Path, owner: int, group: int, own_group: int, mode: int, is_read: bool
) -> None:
    file = open_folder / "secret"
    file.write_bytes(b"of the group")
    os.chown(file, owner, group)
    file.chmod(mode)
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(file), str(own_group)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout == "of the group\n") is is_read, done.stdout + done.stderr
    assert is_read or "others may read or write it" in done.stdout
