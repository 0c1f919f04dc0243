"""Keys of a topic and a group, in files and bodies of offsets and in counts: "topic@group"."""

from typing import Final

SEPARATOR: Final = "@"


def group_key(topic: str, group: str) -> str:
    """Returns the key of a pair."""
    return f"{topic}{SEPARATOR}{group}"


def split_group_key(key: str) -> tuple[str, str]:
    """Returns topic and group of a key; no topic where it has no separator."""
    topic, _, group = key.rpartition(SEPARATOR)
    return topic, group
