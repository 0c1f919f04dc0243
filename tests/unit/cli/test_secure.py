"""What `ledgermq secure init` refuses before it makes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.cli.main import main


@pytest.mark.parametrize("group", ["", "a\nb=c", 'a"b', "a b", "a\\b", "\x1b[2J", "g" * 51])
def test_a_name_of_a_group_that_files_cannot_hold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    words = ["--members", "n0-127.0.0.1:40911", "--name-servers", "127.0.0.1:9876"]
    assert main(["secure", "init", str(tmp_path / "d"), *words, "--group", group]) == 1
    told = capsys.readouterr().err
    assert "--group is " in told and "allowed: 1 to 50 of" in told and "\x1b" not in told
    assert list(tmp_path.iterdir()) == []
