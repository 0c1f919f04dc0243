"""Members of parsed JSON: records of the state, its files, and bodies of other brokers. Pure.

What passes here can be written by every writer of the state: records, files, the answers to
clients and the registration at name servers. JSON of our records is ASCII and so carries anything;
the other writers carry UTF-8 and numbers of 64 bits. So a reader leaves out what it cannot write,
on every member alike, and no later writer fails on what was committed long ago.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)
# Of the name of a topic, group, client or broker: far more than any request may have, and so
# little that a record of the smallest log holds it.
NAME_CHARS_MAX: Final = 1024


def whole_number(value: Mapping[str, Any], name: str, default: int, allowed: range = INT32) -> int:
    """Returns an int member of an object, or the default when it is missing, not in the range, or
    something else.
    """
    member = value.get(name)
    return member if is_whole(member, allowed) else default


def is_whole(value: object, allowed: range = INT32) -> TypeGuard[int]:
    """True for an int of a range, False for a boolean, which Python counts as one."""
    return type(value) is int and value in allowed


def truth(value: Mapping[str, Any], name: str, default: bool) -> bool:
    """Returns a boolean member of an object, or the default when it is missing or something
    else.
    """
    member = value.get(name)
    return member if isinstance(member, bool) else default


def is_text(value: object) -> TypeGuard[str]:
    """True for a text that UTF-8 can carry: one without half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_name(value: object) -> TypeGuard[str]:
    """True for a text that may be a name, whatever the rules for new names are.

    Tables are read from behind a name on, first from behind the empty one: it is in no file.
    """
    return is_text(value) and 0 < len(value) <= NAME_CHARS_MAX


def objects(value: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the members of an object that have a name and are objects themselves."""
    if not isinstance(value, Mapping):
        return []
    return [
        (name, entry)
        for name, entry in value.items()
        if isinstance(entry, Mapping) and is_name(name)
    ]
