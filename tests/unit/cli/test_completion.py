"""Shell completion: the scripts know every command, and bash completes by them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ledgermq.cli.completion import bash, fish, words_of, zsh
from ledgermq.cli.main import COMMANDS, main, parser_of


@pytest.fixture(scope="module")
def table() -> dict[str, object]:
    return words_of({name: parser_of(name) for name in COMMANDS})  # type: ignore[return-value]


def _bash(script: str, line: str) -> list[str]:
    """What bash offers at the end of a command line."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash on this machine")
    words = line.split(" ")
    ask = (
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1};"
        " _ledgermq; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    ran = subprocess.run(
        ["bash", "--norc", "-u", "-c", f"{script}\n{ask}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("ledgermq d", {"doctor", "dlq"}),
        ("ledgermq dlq ", {"list", "show", "resend", "drop"}),
        ("ledgermq dlq resend some-group --wai", {"--waiting"}),
        ("ledgermq admin topicRo", {"topicRoute"}),
        ("ledgermq admin topicRoute --to", {"--topic"}),
        ("ledgermq lag --ov", {"--over"}),
        ("ledgermq completion ", {"bash", "zsh", "fish"}),
        ("ledgermq --ver", {"--version"}),
    ],
)
def test_bash_completes(table: object, line: str, offers: set[str]) -> None:
    assert set(_bash(bash(table), line)) == offers  # type: ignore[arg-type]


@pytest.mark.parametrize(("shell", "write"), [("bash", bash), ("zsh", zsh), ("fish", fish)])
def test_every_script_is_read_by_its_shell(
    shell: str, write: object, table: object, tmp_path: Path
) -> None:
    text = write(table)  # type: ignore[operator]
    for name in COMMANDS:
        assert name in text
    assert "topicRoute" in text
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} on this machine")
    script = tmp_path / f"completion.{shell}"
    script.write_text(text)
    subprocess.run([program, "-n", script], check=True, timeout=30)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    assert "complete -c ledgermq" in capsys.readouterr().out
    assert main(["completion", "--json"]) == 0
    assert '"admin topicRoute"' in capsys.readouterr().out
