"""Words and options that several commands share: key=value, and the name servers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Final

_DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"
# Begins settings of a cluster that its name server gets, without it, and no broker.
_NAMESRV_PREFIX: Final = "namesrv."
TLS_FILE: Final = "tls.config.file"
TLS_MODE: Final = "tls.server.mode"


def default_name_servers() -> str:
    """Returns the name servers of the environment, or else those of this machine."""
    return os.environ.get("NAMESRV_ADDR", _DEFAULT_NAME_SERVERS)


def add_name_servers(parser: argparse.ArgumentParser) -> None:
    """Declares -n of a command that asks a cluster; upstream's tools read the same variable."""
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        "--namesrv-addr",
        metavar="HOST:PORT[;...]",
        default=default_name_servers(),
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


def split_settings(settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns what the brokers of a cluster are told, and what its name server is told."""
    brokers: dict[str, str] = {}
    own: dict[str, str] = {}
    for key, value in settings.items():
        if key.startswith(_NAMESRV_PREFIX):
            own[key.removeprefix(_NAMESRV_PREFIX)] = value
        else:
            brokers[key] = value
    namesrv = {key: brokers[key] for key in (TLS_FILE, TLS_MODE) if key in brokers} | own
    if namesrv.get(TLS_MODE) == "enforcing":
        # Otherwise no broker could register.
        brokers.setdefault("tls.enable", "true")
    return brokers, namesrv
