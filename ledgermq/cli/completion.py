"""``ledgermq completion SHELL``: completes commands, subcommands and options in a shell.

    ledgermq completion bash > ~/.local/share/bash-completion/completions/ledgermq
    ledgermq completion zsh > ~/.zsh-ledgermq      (~/.zshrc, behind compinit: . ~/.zsh-ledgermq)
    ledgermq completion fish > ~/.config/fish/completions/ledgermq.fish

The script is written from the commands themselves, and starts nothing while it completes.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledgermq.cli.main import COMMANDS, parser_of


class Words(NamedTuple):
    """What may follow the words of a command: further words, and options."""

    words: tuple[str, ...]
    options: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--json", action="store_true", help="the words as JSON, for other shells")
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh", "fish"), default="bash")


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    table = words_of({name: parser_of(name) for name in COMMANDS})
    if options.json:
        print(json.dumps({path: one._asdict() for path, one in table.items()}, indent=1))
    else:
        print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](table))
    return 0


def words_of(parsers: Mapping[str, argparse.ArgumentParser]) -> dict[str, Words]:
    """Returns the words by the path that they follow: "", "admin", "admin topicList"."""
    table = {"": Words(tuple(parsers), ("--help", "--version"))}
    for name, parser in parsers.items():
        _add(table, name, parser)
    return table


def _add(table: dict[str, Words], path: str, parser: argparse.ArgumentParser) -> None:
    words: list[str] = []
    names: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                words.append(name)
                _add(table, f"{path} {name}", child)
        elif action.option_strings:
            names += [name for name in action.option_strings if name.startswith("--")]
        elif action.choices:
            words += map(str, action.choices)
    table[path] = Words(tuple(words), tuple(names))


def _cases(table: Mapping[str, Words], words_name: str, options_name: str) -> str:
    lines = []
    for path, one in table.items():
        words, options = " ".join(one.words), " ".join(one.options)
        lines.append(
            f"    {shlex.quote(path)}) {words_name}={shlex.quote(words)};"
            f" {options_name}={shlex.quote(options)};;"
        )
    return "\n".join(lines)


def bash(table: Mapping[str, Words]) -> str:
    """Returns the script for bash."""
    return f"""# bash completion for ledgermq
_ledgermq_words() {{
  case "$1" in
{_cases(table, "words", "options")}
    *) words=''; options='';;
  esac
}}
_ledgermq() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" path='' words options i
  local known
  for ((i = 1; i < COMP_CWORD; i++)); do
    known="${{path:+$path }}${{COMP_WORDS[i]}}"
    _ledgermq_words "$known"
    [[ -n "$words$options" ]] && path="$known"
  done
  _ledgermq_words "$path"
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _ledgermq ledgermq"""


def zsh(table: Mapping[str, Words]) -> str:
    """Returns the script for zsh."""
    return f"""#compdef ledgermq
_ledgermq_words() {{
  case "$1" in
{_cases(table, "lq_words", "lq_options")}
    *) lq_words=''; lq_options='';;
  esac
}}
_ledgermq() {{
  local place='' known lq_words lq_options i
  for ((i = 2; i < CURRENT; i++)); do
    known="${{place:+$place }}${{words[i]}}"
    _ledgermq_words "$known"
    [[ -n "$lq_words$lq_options" ]] && place="$known"
  done
  _ledgermq_words "$place"
  if [[ "${{words[CURRENT]}}" == -* ]]; then
    compadd -- ${{=lq_options}}
  elif [[ -n "$lq_words" ]]; then
    compadd -- ${{=lq_words}}
  else
    _files
  fi
}}
compdef _ledgermq ledgermq"""


def fish(table: Mapping[str, Words]) -> str:
    """Returns the script for fish."""
    lines = ["# fish completion for ledgermq", "complete -c ledgermq -f"]
    for path, one in table.items():
        condition = _fish_condition(path.split(), table)
        if one.words:
            lines.append(
                f"complete -c ledgermq -n {shlex.quote(condition)} -a"
                f" {shlex.quote(' '.join(one.words))}"
            )
        lines += [
            f"complete -c ledgermq -n {shlex.quote(condition)} -l {name[2:]}"
            for name in one.options
        ]
    return "\n".join(lines)


def _fish_condition(path: Sequence[str], table: Mapping[str, Words]) -> str:
    if not path:
        return "__fish_use_subcommand"
    seen = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in path)
    children = [word for word in table[" ".join(path)].words if f"{' '.join(path)} {word}" in table]
    if children:
        return f"{seen} ; and not __fish_seen_subcommand_from {' '.join(children)}"
    return seen
