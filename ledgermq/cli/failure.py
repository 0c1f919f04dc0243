"""How a command says that it failed. Apart from program.py, which costs a reactor to load."""

from __future__ import annotations

import sys


def fail(reason: str) -> int:
    """Prints why a command failed on stderr; returns its exit code."""
    print(f"ledgermq: {reason}", file=sys.stderr)
    return 1
