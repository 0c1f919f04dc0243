"""What an account may be shown of lists, tables and figures.

The guard says it of the connection whose request is worked on; whoever answers with names of topics
or groups leaves the others out, as if they were not there. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

_V = TypeVar("_V")


class Sight(Protocol):
    """The names that an account has a right to."""

    @property
    def key(self) -> object:
        """The same object where the same is shown."""

    def sees_topic(self, name: str) -> bool:
        """True where it may send to the topic or read it; a retry topic is its group."""

    def sees_group(self, name: str) -> bool:
        """True where it may read as the group."""


class Asker(Protocol):
    """What is needed of a connection."""

    @property
    def sight(self) -> Sight | None:
        """None: everything is shown, to an admin or where there is no access control."""


@dataclass(frozen=True, slots=True)
class Eyes:
    """What an account sees that asked; its connection tells it for the request at hand only."""

    sight: Sight | None


def visible_topics(asker: Asker, names: Iterable[str]) -> list[str]:
    """Returns those topics that may be shown, in their order."""
    sight = asker.sight
    return list(names) if sight is None else [name for name in names if sight.sees_topic(name)]


def visible_groups(asker: Asker, names: Iterable[str]) -> list[str]:
    """Returns those groups that may be shown, in their order."""
    sight = asker.sight
    return list(names) if sight is None else [name for name in names if sight.sees_group(name)]


def topics_of_table(asker: Asker, table: Mapping[str, _V]) -> Mapping[str, _V]:
    """Returns the entries of those topics that may be shown."""
    sight = asker.sight
    if sight is None:
        return table
    return {name: value for name, value in table.items() if sight.sees_topic(name)}


def groups_of_table(asker: Asker, table: Mapping[str, _V]) -> Mapping[str, _V]:
    """Returns the entries of those groups that may be shown."""
    sight = asker.sight
    if sight is None:
        return table
    return {name: value for name, value in table.items() if sight.sees_group(name)}


def pairs_of_table(asker: Asker, table: Mapping[str, _V]) -> Mapping[str, _V]:
    """Returns the entries whose key is "topic@group" and both of which may be shown."""
    sight = asker.sight
    if sight is None:
        return table
    shown = {}
    for key, value in table.items():
        topic, _, group = key.rpartition("@")
        if sight.sees_topic(topic) and sight.sees_group(group):
            shown[key] = value
    return shown
