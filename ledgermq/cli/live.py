"""Live: a table that is printed again and again, over itself on a terminal."""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Sequence

from ledgermq.cli.cluster_command import count, positive
from ledgermq.cli.failure import tell
from ledgermq.client import ClientError


def add_live_arguments(parser: argparse.ArgumentParser, *, interval_s: float) -> None:
    """Declares how often, and how many times."""
    parser.add_argument(
        "--interval",
        type=positive,
        default=interval_s,
        metavar="SECONDS",
        help="between two rounds; default: %(default)g",
    )
    parser.add_argument(
        "--rounds", type=count, metavar="N", help="end after so many; default: go on"
    )


def repeat(options: argparse.Namespace, print_round: Callable[[], None]) -> int:
    """Prints rounds until Ctrl-C, or as many as were asked for; returns the exit code.

    A round that fails for a reason that may pass is told, and the next one tried.
    """
    number = 0
    has_failed = False
    is_screen = sys.stdout.isatty() and not options.json
    begun_s = time.monotonic()
    try:
        while True:
            number += 1
            has_failed = not _one(options, print_round, is_screen)
            if number == options.rounds:
                return 1 if has_failed else 0
            due_s = begun_s + number * options.interval
            time.sleep(max(due_s - time.monotonic(), 0.0))
    except KeyboardInterrupt:
        return 0


def _one(options: argparse.Namespace, print_round: Callable[[], None], is_screen: bool) -> bool:
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            print_round()
    except ClientError as error:
        if not error.retriable:
            raise
        if is_screen:
            sys.stdout.write("\x1b[H\x1b[J")
        tell(str(error), as_json=options.json)
        return False
    lines = text.getvalue()
    if is_screen:
        # From the upper left corner, and nothing that was below.
        size = shutil.get_terminal_size()
        fitting = folded(lines.splitlines(), size.columns)[: size.lines - 1]
        sys.stdout.write("\x1b[H\x1b[J" + "\n".join(fitting) + "\n")
    else:
        sys.stdout.write(lines)
    sys.stdout.flush()
    return True


def folded(lines: Sequence[str], columns: int) -> list[str]:
    """Returns lines of at most so many columns; what is too long goes on in the next one.

    Nothing is cut off: an alarm may stand at the end of a line.
    """
    found = []
    # A terminal too narrow for an indented letter has lines that go on at its edge.
    indent = "  " if columns > 2 else ""
    for line in lines:
        rest = line
        while len(rest) > columns > 0:
            found.append(rest[:columns].rstrip())
            rest = indent + rest[columns:].lstrip()
        found.append(rest)
    return found
