"""The command line as a whole: help, exit codes, settings, and refusals before anything starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq import __version__
from ledgermq.cli.admin import NOUNS
from ledgermq.cli.main import COMMANDS, main
from ledgermq.cli.settings import parse_settings, split_settings
from ledgermq.cli.subcommand import hyphened
from ledgermq.cli.table import print_table

ROOT = Path(__file__).resolve().parents[3]


def outcome(*words: object) -> int:
    """The exit code, whichever way it is given."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--help") == 0
    text = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"    {name} " in text
        assert entry.summary.split(":")[0] in text


def test_pages_name_commands_that_are_there() -> None:
    """A playbook is read when there is no time to look for the right name."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("conf/prometheus/*.yml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    typed = {*re.findall(r"`(?:[^`\n]*\| )?ledgermq ([a-z]+)\b(?!\.)", text)}
    typed |= {*re.findall(r"^ledgermq ([a-z]+)\b", text, re.MULTILINE)}
    assert len(typed) > 15 and typed <= {*COMMANDS}
    asked = {*re.findall(r"ledgermq admin ([a-z][A-Za-z-]+)", text)}
    known = {name for noun in NOUNS.values() for name in noun.SUBCOMMANDS}
    assert len(asked) > 5 and asked <= known | {hyphened(name) for name in known}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(command, "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: ledgermq {command}")
    assert "--json" in text or command in ("up", "log", "store", "admin", "pipeline")


@pytest.mark.parametrize("command", ["admin", "send", "consume", "log", "doctor"])
def test_a_quick_command_loads_no_reactor(command: str) -> None:
    ask = f"import sys, ledgermq.cli.{command}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", ask], check=True, capture_output=True, text=True
    ).stdout.split()
    assert f"ledgermq.cli.{command}" in loaded
    assert not [name for name in loaded if name.startswith("twisted")]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--version") == 0
    assert capsys.readouterr().out == f"ledgermq {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("log",),
        ("log", "verify"),
        ("log", "mend", "."),
        ("admin",),
        ("admin", "noSuchCommand"),
        ("admin", "topicRoute"),
        ("admin", "updateTopic", "-t", "T"),
        ("admin", "updateTopic", "-t", "T", "-c", "C", "-b", "h:1"),
        ("admin", "updateTopic", "-t", "T", "-c", "C", "-o", "perhaps"),
        ("up", "--nodes", "three"),
        ("broker", "--no-such-flag"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(*words) == 2
    assert "usage: ledgermq" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("snd",), "no command 'snd'; did you mean send?"),
        (("nonsense",), "no command 'nonsense'; `ledgermq --help` lists what there is"),
        (("admin", "topicRout"), "no command 'topicRout'; did you mean topicRoute"),
        (("log", "verfy"), "no command 'verfy'; did you mean verify?"),
        (("admin", "topicRout", "--topic", "T"), "did you mean topicRoute"),
        (("send", "--topc", "x", "text"), "--topc; did you mean --topic?"),
        (("send", "--topc=x", "text"), "--topc=x; did you mean --topic?"),
        (("admin", "topicRoute", "--topc", "x"), "--topc; did you mean --topic"),
        (("--json", "send"), "flags come after it: ledgermq send --json"),
        (("-n", "h:1", "send"), "flags come after it: ledgermq COMMAND -n"),
    ],
)
def test_wrong_word_is_named_with_what_may_have_been_meant(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a mistyped flag it was told that another one is missing."""
    assert outcome(*words) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert text in told and len(told) < 160


def test_text_that_looks_like_a_flag_is_sent_behind_two_hyphens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome("send", "-t", "T", "-n", "nowhere", "--", "--no-flag") == 1
    assert "nowhere" in capsys.readouterr().err


def test_assertions_are_needed() -> None:
    words = [sys.executable, "-O", "-m", "ledgermq.cli.main", "broker"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "-O" in done.stderr


def test_settings_are_key_and_value_and_the_last_one_wins() -> None:
    assert parse_settings([]) == {}
    assert parse_settings(["a=1", "b=x=y", "c=", "a=2"]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("word", ["a", "=1", "=", ""])
def test_settings_of_another_form_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        parse_settings(["b=1", word])


def test_settings_may_stand_on_both_sides_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "listenPort=1",
        "brokerName=b",
        "-n",
        "h:1",
        "-p",
        "listenPort=2",
        "maxMessageSize=2048",
    )
    assert outcome("broker", *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"listenPort=2", "brokerName=b", "namesrvAddr=h:1", "maxMessageSize=2048"} <= {*lines}
    assert outcome("namesrv", "topicsMax=7", "-p", 12345, "brokersMax=8", "--print-config") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"topicsMax=7", "brokersMax=8", "listenPort=12345"} <= {*lines}
    assert outcome("broker", "brokerName=b", "-n", "h:1", "listenPort") == 78
    assert "setting 'listenPort' is not of the form key=value" in capsys.readouterr().err
    assert outcome("broker", "brokerName=b", "-n", "h:1", "a=b", "--none=1") == 2
    assert outcome("log", "stat", ".", "--json", "a=b") == 2


def refusal(program: str) -> int:
    """With which exit code it refuses: a service manager does not start a server again."""
    return 78 if program in ("broker", "namesrv") else 1


@pytest.mark.parametrize("program", ["broker", "namesrv", "doctor", "up"])
def test_a_word_that_is_no_setting_refuses_to_start(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(program, "listenPort") == refusal(program)
    assert "listenPort" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("listenPort=70000", ["listenPort", "70000", "0 to 65535"]),
        ("listenPort=ten", ["listenPort", "ten", "0 to 65535"]),
        ("flushDiskType=MAYBE", ["flushDiskType", "MAYBE", "SYNC_FLUSH", "ASYNC_FLUSH"]),
        ("autoCreateTopicEnable=yes", ["autoCreateTopicEnable", "yes", "true or false"]),
        ("maxMessageSize=1", ["maxMessageSize", "'1'", "1024"]),
        ("enableDLegerCommitLog=true", ["dLegerSelfId"]),
    ],
)
def test_a_wrong_value_refuses_with_key_value_and_range(
    setting: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("broker", "doctor"):
        assert outcome(program, setting) == refusal(program)
        text = capsys.readouterr().err
        assert [word for word in words if word not in text] == [], text
        assert len(text.splitlines()) == 1


def test_a_wrong_value_of_a_name_server_refuses_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("namesrv", "-p", 70000) == 78
    text = capsys.readouterr().err
    assert "listenPort" in text and "70000" in text


def test_a_configuration_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("broker", "namesrv", "doctor"):
        assert outcome(program, "-c", tmp_path / "none.conf") == refusal(program)
        assert "none.conf" in capsys.readouterr().err


def test_a_configuration_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.conf"
    path.write_text("brokerName=\\u12")
    for program in ("broker", "namesrv", "doctor"):
        assert outcome(program, "-c", path) == refusal(program)
        text = capsys.readouterr().err
        assert "broken.conf" in text
        assert "Traceback" not in text


def settings_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_broker_prints_its_effective_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line wins over the file, and what is printed is a file that says the same."""
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=from-file\nlistenPort=11111\nmaxMessageSize=2048\n")
    words = ("broker", "-c", path, "-n", "h1:9876;h2:9876", "-p", "listenPort=22222")
    assert outcome(*words) == 0
    printed = capsys.readouterr().out
    for line in (
        "brokerName=from-file", "listenPort=22222", "maxMessageSize=2048",
        "flushDiskType=SYNC_FLUSH", "namesrvAddr=h1:9876;h2:9876",
    ):  # fmt: skip
        assert line in printed.splitlines(), printed
    path.write_text(printed)
    assert outcome("broker", "-c", path, "-p") == 0
    # But for the comments, which say where each setting comes from.
    assert settings_in(capsys.readouterr().out) == settings_in(printed)


def test_a_name_server_prints_its_effective_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome("namesrv", "-p", 12345, "--print-config") == 0
    assert "listenPort=12345" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--nodes", 0), "--nodes is 0; allowed: 1 to 9"),
        (("--nodes", 10), "--nodes is 10; allowed: 1 to 9"),
        (("--base-port", 36000), "--base-port is 36000"),
        (("--base-port", 0), "--base-port is 0"),
        (("--namesrv-port", 70000), "--namesrv-port is 70000"),
        (("--base-port", 9866), "--namesrv-port 9876"),
    ],
)
def test_up_refuses_what_cannot_work(
    words: tuple[object, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome("up", *words) == 1
    assert text in capsys.readouterr().err


def test_a_table_is_as_wide_as_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("a", 5), ("longer", 12345)], False)
    assert capsys.readouterr().out == "name        n\na           5\nlonger  12345\n"


def test_a_table_without_rows_shows_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [], False)
    assert capsys.readouterr().out == "name  n\n"
    print_table(("name", "n"), [], True)
    assert capsys.readouterr().out == "[]\n"


def test_settings_of_a_cluster_reach_the_programs_they_are_meant_for() -> None:
    tls = {"tls.config.file": "f", "tls.server.mode": "permissive"}
    assert split_settings({"brokerName": "a", "namesrv.topicsMax": "7", **tls}) == (
        {"brokerName": "a", **tls},
        {"topicsMax": "7", **tls},
    )
    brokers, namesrv = split_settings({**tls, "namesrv.tls.server.mode": "enforcing"})
    assert brokers == {**tls, "tls.enable": "true"}
    assert namesrv == {**tls, "tls.server.mode": "enforcing"}
