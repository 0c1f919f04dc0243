"""The small text files of a store: lines of `key=value`, as Java's Properties reads them.

Upstream's files (`currterm`, `checkpoint`) are plain. Ours carry a last line `crc32=` over the
lines before it, so that a damaged one is noticed.
"""

import zlib

_CRC_KEY = "crc32"


def format_lines(values: dict[str, str]) -> bytes:
    """Returns one `key=value` line for each value, in the order given."""
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def parse_lines(data: bytes) -> dict[str, str]:
    """Returns the values by key; lines without `=`, and comments, are passed over."""
    values = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith(("#", "!")):
            values[key.strip()] = value.strip()
    return values


def seal(values: dict[str, str]) -> bytes:
    """Returns the lines with their checksum."""
    lines = format_lines(values)
    return lines + format_lines({_CRC_KEY: f"{zlib.crc32(lines):08x}"})


def unseal(data: bytes) -> dict[str, str] | None:
    """Returns the values by key, or None when the checksum is missing or does not fit."""
    values = parse_lines(data)
    found = values.pop(_CRC_KEY, None)
    return values if found is not None and seal(values) == data else None


def parse_int(values: dict[str, str], key: str) -> int | None:
    """Returns the number under `key`, or None when there is none."""
    try:
        return int(values[key])
    except (KeyError, ValueError):
        return None
