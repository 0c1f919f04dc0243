"""Words of the form key=value on a command line."""

from __future__ import annotations


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
