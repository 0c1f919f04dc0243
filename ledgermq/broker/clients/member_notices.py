"""MemberNotices: members of groups are told that somebody came or went, a part of each turn.

A client is in a thousand groups and a group has a hundred members, so one connection that opens or
closes may mean a hundred thousand notices. Groups to be told about stand here, each once however
often it changed meanwhile; a few members of each are told, then a few of the next one.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import NotifyConsumerIdsChangedRequestHeader
from ledgermq.protocol.transport import CommandProtocol

# Of a turn, for all notices together, in milliseconds.
NOTICES_MS: Final = 0.5
# Members that are told before it is the next group's turn.
_AT_ONCE: Final = 16


class MemberNotices:
    """What members are still to be told.

    Invariant: while there is something, a call for another turn is due.
    """

    def __init__(
        self,
        members_of: Callable[[str], Iterable[CommandProtocol]],
        soon: Callable[[Callable[[], None]], None],
        clock_ms: Callable[[], float],
    ) -> None:
        """Begins empty.

        Args:
            members_of: connections of the members of a group that want to be told.
            soon: has a function called in another turn.
            clock_ms: monotonic time.
        """
        self._members_of = members_of
        self._soon = soon
        self._clock_ms = clock_ms
        # Groups in the order in which they come next, with who is left to be told of each; None:
        # nobody was yet.
        self._untold: dict[str, Iterator[CommandProtocol] | None] = {}

    def __len__(self) -> int:
        return len(self._untold)

    def tell(self, group: str) -> None:
        """Has all members of a group told: NOTIFY_CONSUMER_IDS_CHANGED (40)."""
        if not self._untold:
            self._soon(self._go_on)
        # Who was told already is told again: since then something changed.
        self._untold[group] = None

    def _go_on(self) -> None:
        end_ms = self._clock_ms() + NOTICES_MS
        try:
            while self._untold and self._clock_ms() < end_ms:
                group, members = next(iter(self._untold.items()))
                del self._untold[group]
                self._tell_some(group, members or iter(tuple(self._members_of(group))))
        finally:
            if self._untold:
                self._soon(self._go_on)

    def _tell_some(self, group: str, members: Iterator[CommandProtocol]) -> None:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        some = tuple(islice(members, _AT_ONCE))
        if len(some) == _AT_ONCE:
            # It is not its turn again before the others had theirs.
            self._untold[group] = members
        for connection in some:
            if connection.is_open:
                code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                connection.send_one_way(RemotingCommand.request(code, header, one_way=True))
