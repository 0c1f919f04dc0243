"""Inbox: messages of other members that the core has not taken yet, bounded in bytes.

They are taken once a turn, but not while a step of a Ready waits for the disk: on a full disk, or
one that hangs, that lasts for hours, and the peers go on sending. Then a message replaces an
earlier one that it makes obsolete, and takes its place: a push the former push of the same sender
from the same index on, a heart beat the former heart beat. What is left of a leader that repeats
its window is one window, in its order; what is left of heart beats, votes and reports is one of
each sender and kind. Above the limit a message is dropped.

To drop is preferred to reading no more from the connection (back-pressure). All that a member says
travels on one connection: while that is not read, neither are votes, heart beats and pings, and the
other end takes the link for dead and connects again every few seconds. Its unsent pushes would wait
in the memory of the leader, which has to serve the healthy majority, instead of in this one. And
nothing is gained: the leader of a silent follower repeats a single frame each second
(`dispatcher.py`), and that one replaces itself. For Raft, dropped, replaced and reordered messages
are those of a lossy network.
"""

from collections.abc import Iterable
from typing import Final

from ledgermq.dledger.config import KIB
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CompareRequest,
    Message,
    PushResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
)

# What a message takes besides its entries: the objects it is made of, measured and rounded up.
MESSAGE_BYTES: Final = KIB
# Part of the limit that pushes leave to votes, heart beats and answers.
_CONTROL_BYTES: Final = 256 * KIB

_Key = tuple[str, type[Message], int] | int


def memory_bytes(message: Message) -> int:
    """Returns about what a message takes in memory."""
    if isinstance(message, AppendRequest):
        return MESSAGE_BYTES + message.entries.memory_bytes
    if isinstance(message, CompareRequest | TruncateRequest):
        return MESSAGE_BYTES + message.entry.memory_bytes
    return MESSAGE_BYTES


def _key_of(message: Message) -> _Key:
    """Returns what a message has in common with those that make it obsolete."""
    detail = 0
    if isinstance(message, AppendRequest):
        detail = message.entries.first_index
    elif isinstance(message, PushResponse):
        detail = message.request_id
    elif isinstance(message, VoteRequest | VoteResponse):
        detail = int(message.pre_vote)
    elif isinstance(message, BirthReport):
        detail = int(message.wants_answer)
    return message.sender, type(message), detail


class Inbox:
    """Messages in the order of their arrival.

    Invariants: `size_bytes` is the sum over the messages, and at most `bytes_max`.
    """

    def __init__(self, bytes_max: int) -> None:
        """Begins empty.

        Args:
            bytes_max: what the messages may take; at least a whole push window of a leader.
        """
        self._bytes_max = bytes_max
        self._messages: dict[_Key, Message] = {}
        self.size_bytes = 0
        # Since the start: messages that found no room.
        self.dropped_count = 0

    def add(self, message: Message, *, replaces: bool) -> None:
        """Puts a message behind the others; drops it above the limit.

        Args:
            message: for the core.
            replaces: whether it takes the place of an earlier one that it makes obsolete.
        """
        key = _key_of(message) if replaces else len(self._messages)
        former = self._messages.get(key) if replaces else None
        size_bytes = memory_bytes(message)
        growth_bytes = size_bytes - (0 if former is None else memory_bytes(former))
        kept_bytes = _CONTROL_BYTES if size_bytes > MESSAGE_BYTES else 0
        if growth_bytes > 0 and self.size_bytes + growth_bytes > self._bytes_max - kept_bytes:
            self.dropped_count += 1
            return
        self._messages[key] = message
        self.size_bytes += growth_bytes

    def take(self) -> Iterable[Message]:
        """Returns all messages, and is empty."""
        messages, self._messages = self._messages, {}
        self.size_bytes = 0
        return messages.values()
