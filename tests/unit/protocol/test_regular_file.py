"""Whatever stands under the name of a file, it is read or refused at once."""

import os
from pathlib import Path

import pytest

from ledgermq.broker.access.rules_file import read_rules
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.state.errors import AccessRulesError, StateFileError


def test_as_many_bytes_as_tell_that_there_are_too_many(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular_file(path, 3)[0] == b"1234"
    data, status = read_regular_file(path, 5)
    assert (data, status.st_size) == (b"12345", 5)


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
    path.with_name("x.yml.bak").write_text('{"a": 1}')
    assert StateFile(path).load() == {"a": 1}


def test_a_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StateFileError, match="1099511627776 bytes, allowed are 1000"):
        StateFile(path, bytes_max=1000).load()
