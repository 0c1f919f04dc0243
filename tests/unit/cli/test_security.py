"""Files with secrets that a command is given, and what it says of their modes."""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path

import pytest

from ledgermq.cli import access, security
from ledgermq.cli.security import Security, SecurityError, read_security
from ledgermq.protocol.headers import CreateAccessConfigRequestHeader

KEYS = "accessKey: operator\nsecretKey: secret-of-all\n"


def asked(*words: str) -> Security:
    parser = argparse.ArgumentParser()
    security.add_arguments(parser)
    return read_security(parser.parse_args([*words]))


@pytest.mark.parametrize(
    ("mode", "is_told"),
    [(0o600, False), (0o400, False), (0o640, True), (0o644, True), (0o602, True)],
)
def test_an_account_that_others_may_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, is_told: bool
) -> None:
    """It is taken all the same: mqadmin's own file is open to all."""
    path = tmp_path / "tools.yml"
    path.write_text(KEYS)
    path.chmod(mode)
    found = asked("--acl-config", str(path)).credentials
    assert found is not None and found.secret_key == "secret-of-all"
    told = capsys.readouterr()
    assert told.out == "" and (f"{path} has mode {mode:04o}: others" in told.err) is is_told
    assert ("chmod 0600" in told.err) is is_told and "secret-of" not in told.err


@pytest.mark.timeout(20)
@pytest.mark.parametrize("option", ["--acl-config", "--tls-config"])
def test_no_command_waits_for_a_pipe(tmp_path: Path, option: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    with pytest.raises(SecurityError, match="no regular file"):
        asked(option, str(path))


def test_an_account_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SecurityError, match="more than"):
        asked("--acl-config", str(path))


def account(*words: str) -> CreateAccessConfigRequestHeader:
    parser = argparse.ArgumentParser()
    access.SUBCOMMANDS["updateAclConfig"].add_arguments(parser)
    return access.account_of(parser.parse_args(["-b", "b:1", "-a", "shop-app", *words]))


def test_the_secret_of_an_account_comes_from_a_file(tmp_path: Path) -> None:
    """A word of a command line is seen by every user of the machine."""
    path = tmp_path / "secret"
    path.write_text("secret-of-shop\n")
    path.chmod(0o600)
    assert account("--secretKeyFile", str(path)).secret_key == "secret-of-shop"
    assert account("-f", str(path)).secret_key == "secret-of-shop"
    assert account("-s", "as-mqadmin").secret_key == "as-mqadmin"
    assert account().secret_key is None
    with pytest.raises(SecurityError, match="-s and --secretKeyFile"):
        account("-s", "as-mqadmin", "-f", str(path))
    path.chmod(0o644)
    with pytest.raises(SecurityError, match="others may read or write it"):
        account("-f", str(path))
    path.chmod(0o600)
    path.write_text("\n")
    with pytest.raises(SecurityError, match="no secret"):
        account("-f", str(path))


def test_the_secret_of_an_account_comes_from_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-of-shop\r\n"))
    assert account("-f", "-").secret_key == "secret-of-shop"
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 100_000))
    with pytest.raises(SecurityError, match="more than 4096"):
        account("-f", "-")


def test_on_a_terminal_the_secret_is_asked_for_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "secret-of-shop"

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", ask)
    assert account("-f", "-").secret_key == "secret-of-shop"
    assert prompts == ["secret key of shop-app: "]
