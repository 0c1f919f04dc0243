"""Settings from the environment, as containers and service managers give them.

`LEDGERMQ_` and the name of a key, as it stands in the file or in capitals with underscores:
`LEDGERMQ_brokerName`, `LEDGERMQ_BROKER_NAME`, `LEDGERMQ_TLS_SERVER_MODE` (tls.server.mode). The
file wins over the environment, a word on the command line over both. Other variables of that prefix
are passed over: an orchestrator makes some of its own for a service that has our name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ledgermq.protocol.properties_file import parse_properties_file

PREFIX: Final = "LEDGERMQ_"
# Where a word of a key begins: dLegerSelfId, brokerIP1, tls.server.mode.
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def variable_of(key: str) -> str:
    """Returns the variable in capitals that sets a key."""
    return PREFIX + _WORD.sub("_", key).replace(".", "_").upper()


def settings_of(keys: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that the environment makes, by key.

    Args:
        keys: that there are.
        environment: names and values.

    Raises:
        ValueError: two variables set one key to different values.
    """
    settings: dict[str, str] = {}
    for key in keys:
        names = [name for name in (PREFIX + key, variable_of(key)) if name in environment]
        values = {environment[name] for name in names}
        if len(values) > 1:
            raise ValueError(f"{' and '.join(names)} set {key} to different values")
        if values:
            settings[key] = values.pop()
    return settings


def keys_of_file(path: Path | None) -> tuple[str, list[str]]:
    """Returns the name of a properties file that was read, and the keys in it."""
    if path is None:
        return "", []
    return path.name, list(parse_properties_file(path.read_bytes()))


def with_sources(
    effective: Mapping[str, str],
    environment: Iterable[str],
    file: tuple[str, Iterable[str]],
    words: Iterable[str],
) -> str:
    """Returns a properties text with a comment before each setting that is not a default.

    Args:
        effective: what is in force, by key.
        environment: the keys that it sets.
        file: its name, and the keys that it sets.
        words: the keys of the command line.
    """
    sources: dict[str, str] = {}
    for key in environment:
        sources[key] = f"the environment ({variable_of(key)})"
    for key in file[1]:
        sources[key] = file[0]
    for key in words:
        sources[key] = "the command line"
    lines = []
    for key, value in effective.items():
        if key in sources:
            lines.append(f"# from {sources[key]}")
        lines.append(f"{key}={value}")
    return "".join(f"{line}\n" for line in lines)
