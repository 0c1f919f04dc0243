"""What `ledgermq send` makes of its input, and what `ledgermq consume` sums up."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ledgermq.cli.bench import quantile
from ledgermq.cli.consume import Checksum, shown_message
from ledgermq.cli.main import main
from ledgermq.cli.progress import Progress
from ledgermq.cli.send import InputError, add_arguments, keyed_messages
from ledgermq.client import MessageQueue, ReceivedMessage

ROOT = Path(__file__).resolve().parents[3]


def inputs(*words: str) -> list[tuple[bytes, str, str | None]]:
    """Body, KEYS and ordering key of each message."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args(["-t", "T", *words])
    return [(m.body, m.keys, key) for m, key in keyed_messages(options, {})]


def test_each_text_is_a_message_with_the_key() -> None:
    assert inputs("a", "ж") == [(b"a", "", None), ("ж".encode(), "", None)]
    assert inputs("--key", "k", "a") == [(b"a", "k", "k")]


def test_file_is_one_message_or_one_for_each_line(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\r\ntwo\n\nthree")
    assert [body for body, _, _ in inputs("--file", str(path))] == [b"one\r\ntwo\n\nthree"]
    lines = [body for body, _, _ in inputs("--file", str(path), "--lines")]
    assert lines == [b"one", b"two", b"three"]


def test_field_of_a_json_line_is_its_key(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text('{"id": "a"}\n{"id": 7}\n')
    found = inputs("--file", str(path), "--key-field", "id")
    assert [(keys, key) for _, keys, key in found] == [("a", "a"), ("7", "7")]


@pytest.mark.parametrize(
    "line", ["nope", "[]", '{"x": 1}', '{"id": null}', '{"id": ""}', '{"id": []}']
)
def test_line_without_its_key_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "in"
    path.write_text('{"id": "a"}\n' + line + "\n")
    with pytest.raises(InputError, match="line 2"):
        inputs("--file", str(path), "--key-field", "id")


@pytest.mark.parametrize(
    "words",
    [
        ("send", "-t", "T"),
        ("send", "-t", "T", "--file", "/nowhere/at/all"),
        ("send", "-t", "T", "--property", "x", "text"),
        ("send", "-t", "T", "-n", "nowhere", "text"),
        ("consume", "-t", "T", "-n", "nowhere"),
        ("bench", "produce", "-n", "nowhere"),
    ],
)
def test_failure_is_told_on_stderr_with_exit_code_1(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 1
    told = capsys.readouterr()
    assert told.err.startswith("ledgermq: ")
    assert told.out == ""


def test_checksum_is_the_same_in_any_order_and_adds_up() -> None:
    bodies = [b"a", b"bb", b"a", b""]
    whole, reverse = Checksum(), Checksum()
    for body in bodies:
        whole.add(body)
    for body in bodies[::-1]:
        reverse.add(body)
    assert whole.figures() == reverse.figures()
    total = sum(int.from_bytes(hashlib.sha256(body).digest(), "big") for body in bodies)
    assert whole.figures() == {
        "count": 4, "bytes": 4, "sha256_sum": f"{total % 2**256:064x}",
    }  # fmt: skip


def test_progress_tells_rates() -> None:
    progress = Progress("sent")
    progress.add_many(1000, 2_000_000)
    assert progress.summary(2.0) == (
        "sent 1,000 messages, 2.0 MB in 2.00 s: 500 messages/s, 1.0 MB/s"
    )
    assert progress.figures(2.0)["messages_per_second"] == 500.0


def test_quantile_of_few_values() -> None:
    assert quantile([], 0.5) == 0.0
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([float(i) for i in range(100)], 0.5) == 50.0


def test_generated_events_are_the_same_everywhere() -> None:
    spec = importlib.util.spec_from_file_location(
        "generate", ROOT / "examples" / "million_events" / "generate.py"
    )
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    lines = list(generate.events(2000))
    assert all(200 <= len(line) <= 600 for line in lines)
    digest = hashlib.sha256(b"\n".join(lines)).hexdigest()
    assert digest == "38ec9821dfafcd1fb08e0e4d457778fbb564aded9059c6fbdf3adbd747cfd171"


@pytest.mark.parametrize(
    "words",
    [["--count", "-1"], ["--count", "1.5"], ["--until-idle", "0"], ["--until-idle", "-1"]],
)
def test_consume_refuses_ends_that_cannot_come(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["consume", "-n", "127.0.0.1:1", "-t", "T", *words])
    assert ended.value.code == 2
    assert words[1] in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_a_message_holds_acts_on_no_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    acting = "\x1b[31m \x9b31m \x9d0;title\x07 \u202e \u0436"
    message = SimpleNamespace(
        topic="T",
        body=acting.encode(),
        tags=acting,
        keys=acting,
        properties={acting: acting},
        born_timestamp_ms=1,
        store_timestamp_ms=1,
        queue=MessageQueue(topic="T", broker_name="b", queue_id=0),
        queue_offset=0,
        message_id="m",
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    line = shown_message(cast("ReceivedMessage", message), as_json=True)
    assert json.loads(line)["body"] == json.loads(line)["tags"] == acting
    assert json.loads(line)["properties"] == {acting: acting}
    # In a pipe a text stays as it is, for those who look for it.
    assert line.isascii() is is_terminal and ("\u0436" in line) is not is_terminal
    assert is_terminal is not bool({"\x9b", "\x9d", "\u202e"} & set(line))


def test_progress_keeps_off_a_terminal_that_shows_something_else() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    seen, unseen = Terminal(), Terminal()
    Progress("consumed", stream=seen).add(1)
    Progress("consumed", stream=unseen, is_shown=False).add(1)
    assert "consumed 1" in seen.getvalue() and unseen.getvalue() == ""
