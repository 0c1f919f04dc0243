"""The commands that the pages name are those that there are, with their options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledgermq.cli.completion import Words, words_of
from ledgermq.cli.main import COMMANDS, parser_of

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# In a line of code, or between backquotes; what begins with a capital stands for a word of the
# reader's.
COMMAND = re.compile(r"(?:^|`|/bin/| )ledgermq ((?:--?)?[a-z][^`#|;&>\n]*)", re.MULTILINE)
CODE = re.compile(r"^```\w*\n.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def table() -> dict[str, Words]:
    return words_of({name: parser_of(name) for name in COMMANDS})


def commands_of(text: str) -> list[list[str]]:
    """The commands that stand in the code of a page, in words."""
    code = "\n".join(CODE.findall(text.replace("\\\n", " ")))
    return [found.split() for found in COMMAND.findall(code)]


def faults(table: dict[str, Words], command: list[str]) -> list[str]:
    """Returns what no command knows."""
    path, found = "", []
    for word in command:
        # `key=value` behind `--` is a setting of a broker.
        if word == "--":
            break
        known = table[path]
        option = word.strip("[](),.").partition("=")[0]
        if option.startswith("--") and option not in known.options:
            found.append(f"no {option} of {path or 'ledgermq'}")
        elif f"{path} {word}".strip() in table:
            path = f"{path} {word}".strip()
        elif path in ("", "admin") and word.isalpha() and not word.isupper():
            found.append(f"no command {path} {word}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_are_there(page: Path, table: dict[str, Words]) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = {" ".join(words): faults(table, words) for words in commands_of(text)}
    assert {command: found for command, found in wrong.items() if found} == {}


def test_commands_are_found_and_judged(table: dict[str, Words]) -> None:
    text = (
        "`ledgermq lag GROUP` and\n```sh\n.venv/bin/ledgermq tpics   # list\n"
        "ledgermq dlq list G --evry\nledgermq admin topicLst\n```\nledgermq is no command here"
    )
    found = commands_of(text)
    assert found == [
        ["lag", "GROUP"],
        ["tpics"],
        ["dlq", "list", "G", "--evry"],
        ["admin", "topicLst"],
    ]
    assert [faults(table, words) for words in found] == [
        [],
        ["no command  tpics"],
        ["no --evry of dlq"],
        ["no command admin topicLst"],
    ]
