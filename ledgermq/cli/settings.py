"""Words and options that several commands share: key=value, and the name servers."""

from __future__ import annotations

import argparse
import os
from typing import Final

_DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"


def add_name_servers(parser: argparse.ArgumentParser) -> None:
    """Declares -n of a command that asks a cluster; upstream's tools read the same variable."""
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT[;...]",
        default=os.environ.get("NAMESRV_ADDR", _DEFAULT_NAME_SERVERS),
        help="name servers; default: NAMESRV_ADDR of the environment, or else "
        + _DEFAULT_NAME_SERVERS,
    )


def parse_settings(words: list[str]) -> dict[str, str]:
    """Returns the settings; the last of a key wins.

    Raises:
        ValueError: a word has no ``=`` or no key.
    """
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ValueError(f"setting {word!r} is not of the form key=value")
        settings[key] = value
    return settings
