"""Answers of servers, any of which may be a stranger's: how large one may be that is read.

Values are made in one turn of the loop, so what they are made of is counted before.
"""

from typing import Final, TypeVar

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.json_body import JsonBody

# Topics, consumer groups, accounts, clients that one broker tells of; a third more topics than a
# broker keeps by default.
NAMES_MAX: Final = 65_536
# Members of an object, or items of a list, for each object.
_MEMBERS_MAX: Final = 16
# Of texts that a server chose: what it says of itself, why it refuses; and of names in them.
TEXT_CHARS_MAX: Final = 1024
NAME_CHARS_MAX: Final = 255
_Body = TypeVar("_Body", bound=JsonBody)


def read_queues(body: bytes, kind: type[_Body]) -> _Body:
    """Reads an answer with a value for each queue: one object for it, another one for the queue.

    Raises:
        RemoteProtocolError: it is none, or has too many.
    """
    check_objects(body, 2 * NAMES_MAX)
    return kind.decode(body)


def check_objects(body: bytes, objects_max: int) -> None:
    """Refuses an answer in JSON with too many values, before any of them is made.

    Args:
        body: of the answer.
        objects_max: objects in it, brackets in texts included.

    Raises:
        RemoteProtocolError: it has more, or far more members and items.
    """
    for sign, what, count_max in (
        (b"{", "objects", objects_max),
        (b",", "members", objects_max * _MEMBERS_MAX),
    ):
        count = body.count(sign)
        if count > count_max:
            raise RemoteProtocolError(f"{what} of an answer", count, count_max)


def check_size(body: bytes, bytes_max: int) -> None:
    """Refuses an answer that is larger than any true one of its kind.

    Raises:
        RemoteProtocolError: it is.
    """
    if len(body) > bytes_max:
        raise RemoteProtocolError("size of an answer", len(body), bytes_max)
