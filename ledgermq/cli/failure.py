"""How a command says that it failed. Apart from program.py, which costs a reactor to load."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Final

# What a server exits with when its configuration cannot be (EX_CONFIG of sysexits.h): to be started
# again helps only with another one.
EXIT_CONFIG: Final = 78

# What is told of an error for programs, where the error has it.
_FIELDS: Final = ("retriable", "code", "broker", "address", "topic", "queue_id")


def fail(reason: str, *, as_json: bool = False) -> int:
    """Prints why a command failed on stderr, as a line or as JSON; returns its exit code."""
    tell(reason, as_json=as_json)
    return 1


def refuse(reason: str) -> int:
    """Prints why a server's configuration cannot be; returns its exit code."""
    tell(reason)
    return EXIT_CONFIG


def tell(reason: str, *, as_json: bool = False) -> None:
    """Prints a line about what went wrong on stderr."""
    if as_json:
        print(json.dumps({"error": reason}), file=sys.stderr)
        return
    # What a broker answered stands in it. Loaded when something failed: the protocol is most of the
    # start of a program that waits for others.
    plain_text = importlib.import_module("ledgermq.protocol.plain_text")
    print(f"ledgermq: {plain_text.escaped_lines(reason)}", file=sys.stderr)


def failed(error: Exception, *, as_json: bool = False) -> int:
    """Prints an error on stderr, as a line or as JSON with what it names; returns its exit code.

    Raises:
        BrokenPipeError: it is this: who reads the output has gone, which `main` takes for the end.
    """
    if isinstance(error, BrokenPipeError):
        raise error
    plain_text = importlib.import_module("ledgermq.protocol.plain_text")
    reason: str = plain_text.escaped(str(error) or type(error).__name__)
    if not as_json:
        return fail(reason)
    told: dict[str, object] = {"error": reason, "kind": type(error).__name__}
    told |= {name: value for name in _FIELDS if (value := getattr(error, name, None)) is not None}
    print(json.dumps(told), file=sys.stderr)
    return 1
