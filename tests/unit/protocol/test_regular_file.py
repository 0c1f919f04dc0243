"""Whatever stands under the name of a file, it is read or refused at once."""

import os
import tracemalloc
from pathlib import Path

import pytest

from ledgermq.broker.access.rules_file import read_rules
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.state.errors import AccessRulesError, StateFileError


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = b"12345" * 500_000
    path.write_bytes(content)
    with pytest.raises(OSError, match="more than 2499999 bytes"):
        read_regular_file(path, len(content) - 1)
    data, status = read_regular_file(path, len(content))
    assert (data, status.st_size) == (content, len(content))
    # One that says nothing of its size.
    assert read_regular_file(Path("/proc/self/status"), 100_000)[0].startswith(b"Name:")
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_regular_file(Path("/proc/self/status"), 10)


def test_no_more_memory_is_taken_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    tracemalloc.start()
    try:
        read_regular_file(path, 1 << 34)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(20)
def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    """A broker stood still at its next look at the rules."""
    path = tmp_path / "x.yml"
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):
        read_regular_file(path, 10)
    with pytest.raises(AccessRulesError, match="no regular file"):
        read_rules(path)
    with pytest.raises(StateFileError, match="no regular file"):
        StateFile(path).load()


def test_a_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StateFileError, match="more than 1000 bytes"):
        StateFile(path, bytes_max=1000).load()
