"""The console command ``ledgermq``: a table of subcommands, their arguments and exit codes.

Exit codes: 0 done, 1 failed (the reason is on stderr), 2 wrong usage. A command's module is loaded
only when it is asked for, so that a broker does not pay for what it does not use. Each module of
the table offers ``add_arguments(parser)`` and ``run(options) -> int``.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, Final, NamedTuple

from ledgermq import __version__

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class CommandEntry(NamedTuple):
    """Where a subcommand lives and what it is for."""

    module: str
    summary: str


COMMANDS: Final = {
    "up": CommandEntry("ledgermq.cli.up", "development cluster: a name server and a broker group"),
    "namesrv": CommandEntry("ledgermq.cli.namesrv", "run a name server"),
    "broker": CommandEntry("ledgermq.cli.broker", "run a broker"),
    "admin": CommandEntry("ledgermq.cli.admin", "look at or change a cluster: mqadmin's commands"),
    "health": CommandEntry("ledgermq.cli.health", "ask a broker whether it lives, is ready, ..."),
    "topics": CommandEntry("ledgermq.cli.topics", "topics: list, show, create, update, delete"),
    "groups": CommandEntry("ledgermq.cli.groups", "consumer groups: list, show, reset, delete"),
    "lag": CommandEntry("ledgermq.cli.lag", "how far consumer groups are behind"),
    "dlq": CommandEntry("ledgermq.cli.dlq", "dead letters: list, show, resend, drop"),
    "top": CommandEntry("ledgermq.cli.top", "a live table of a cluster"),
    "console": CommandEntry("ledgermq.cli.console", "see and run clusters in a browser"),
    "monitoring": CommandEntry(
        "ledgermq.cli.monitoring", "write alerts for Prometheus and dashboards for Grafana"
    ),
    "send": CommandEntry("ledgermq.cli.send", "send messages: a text, or the lines of a file"),
    "consume": CommandEntry("ledgermq.cli.consume", "print the messages of a topic"),
    "bench": CommandEntry("ledgermq.cli.bench", "measure sending or consuming on a cluster"),
    "log": CommandEntry("ledgermq.cli.log", "dump, verify or summarize a store directory"),
    "store": CommandEntry("ledgermq.cli.store", "turn a plain store into a ledger's, and back"),
    "simulate": CommandEntry(
        "ledgermq.cli.simulate", "run a simulated group with every fault, from seeds"
    ),
    "pipeline": CommandEntry("ledgermq.cli.pipeline", "jobs on Spark: archive, replay and others"),
    "secure": CommandEntry(
        "ledgermq.cli.secure", "make certificates, secrets and accounts of a closed cluster"
    ),
    "doctor": CommandEntry(
        "ledgermq.cli.doctor", "check a machine for a broker, or a running cluster"
    ),
    "plan": CommandEntry("ledgermq.cli.plan", "what a load asks of disks, network and processors"),
    "completion": CommandEntry(
        "ledgermq.cli.completion", "complete commands and options: for bash, zsh and fish"
    ),
}


class Parser(argparse.ArgumentParser):
    """Guesses what was meant by a command that is not there."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            guess = guessed(value, action.choices)
            hint = guess or f"`{self.prog} --help` lists what there is"
            self.error(f"no command {value!r:.80}; {hint}")
        super()._check_value(action, value)


def guessed(word: str, known: Iterable[str]) -> str:
    """Returns what may have been meant, as a question; empty when nothing is near."""
    near = difflib.get_close_matches(word, list(dict.fromkeys(known)), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


class _CommandList(argparse.HelpFormatter):
    """Lists commands in one column: argparse forgets how far subcommands are set in."""

    def add_argument(self, action: argparse.Action) -> None:
        """Takes an argument to be listed."""
        super().add_argument(action)
        longest = max(map(len, COMMANDS))
        self._action_max_length = max(self._action_max_length, longest + 4)


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """Returns the parser; only the chosen command's own arguments are filled in."""
    parser = Parser(
        prog="ledgermq",
        description="A RocketMQ-compatible message broker on a replicated ledger.",
        formatter_class=_CommandList,
    )
    parser.add_argument("--version", action="version", version=f"ledgermq {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, entry in COMMANDS.items():
        command = commands.add_parser(
            name, help=entry.summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == chosen:
            module = _loaded(entry.module)
            command.description = _described(module.__doc__ or "")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """Returns the parser of one command with all its arguments."""
    for action in build_parser(name)._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices[name]
            assert isinstance(found, argparse.ArgumentParser)
            return found
    raise AssertionError(name)


def _loaded(name: str) -> ModuleType:
    """Loads a command's module; what it loads stays, so that no collection looks at it, ever."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _described(docstring: str) -> str:
    """Returns what a module says of itself, without the usage that its first line repeats."""
    text = inspect.cleandoc(docstring)
    usage, colon, rest = text.partition("``:")
    if colon and usage.startswith("``ledgermq "):
        text = rest.lstrip()
        text = text[:1].upper() + text[1:]
    return text.replace("``", "").replace("`", "")


def _refuse_early_flag(
    parser: argparse.ArgumentParser, words: list[str], chosen: str | None
) -> None:
    """Ends with wrong usage when a flag of a command stands before the command."""
    own = ("-h", "--help", "--version")
    if words and words[0].startswith("-") and not any(flag.startswith(words[0]) for flag in own):
        name = chosen if chosen in COMMANDS else "COMMAND"
        parser.error(
            f"{words[0]:.80} stands before the command; flags come after it:"
            f" ledgermq {name} {words[0]:.80}"
        )


def _refuse_unknown_flag(parser: argparse.ArgumentParser, chosen: str, words: list[str]) -> None:
    """Ends with wrong usage when a long flag is nobody's.

    The parser would first tell of a flag that is missing, which is often the one that was mistyped.
    """
    command = next(one for name, one in _commands_of(parser) if name == chosen)
    below = dict(_commands_of(command))
    parsers = [command, *(one for name, one in below.items() if name in words)]
    actions = [action for one in parsers for action in one._actions]
    is_unsure = below and len(parsers) == 1
    if is_unsure or any(action.nargs == argparse.REMAINDER for action in actions):
        return
    known = [flag for action in actions for flag in action.option_strings]
    for word in words[words.index(chosen) + 1 :]:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if not flag.startswith("--") or " " in flag or any(k.startswith(flag) for k in known):
            continue
        hint = guessed(flag, known)
        command.error(f"unrecognized arguments: {word:.80}{'; ' + hint if hint else ''}")


def _commands_of(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield name, command
                yield from _commands_of(command)


def _parse(words: list[str]) -> argparse.Namespace:
    """Reads a command line; words such as key=value may stand before, between and behind options.

    The parser takes one run of words and leaves the others over.
    """
    chosen = next((word for word in words if not word.startswith("-")), None)
    parser = build_parser(chosen)
    _refuse_early_flag(parser, words, chosen)
    if chosen in COMMANDS:
        _refuse_unknown_flag(parser, chosen, words)
    options, left_over = parser.parse_known_args(words)
    more = next((name for name in ("settings", "words") if hasattr(options, name)), None)
    if left_over and (more is None or any(word.startswith("-") for word in left_over)):
        parser.error(f"unrecognized arguments: {' '.join(left_over)}")
    if more is not None:
        getattr(options, more).extend(left_over)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
        arguments: words after the program's name; None for those of this process.

    Returns:
        0 done, 1 failed, 2 wrong usage (argparse exits with 2 by itself).
    """
    if sys.flags.optimize:
        print("ledgermq needs its assertions: start it without python -O", file=sys.stderr)
        return EXIT_USAGE
    words = sys.argv[1:] if arguments is None else arguments
    options = _parse(words)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output went away (ledgermq ... | head); that is no failure of ours.
        sys.stderr.close()
        return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
