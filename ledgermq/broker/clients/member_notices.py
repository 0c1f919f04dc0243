"""MemberNotices: members of groups are told that somebody came or went, a part of each turn.

A client is in a thousand groups and a group has a hundred members, so one connection that opens or
closes may mean a hundred thousand notices. A write to a connection costs more than a notice does,
with TLS many times more; so it is gathered, in two steps, what each connection is to be told:

    groups that changed -> connections of their members, each with its groups -> one write for each

A group stands once in each, however often it changed meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.headers import NotifyConsumerIdsChangedRequestHeader
from ledgermq.protocol.transport import CommandProtocol

# Of a turn, for all notices together, in milliseconds; half of it may go to the first step.
NOTICES_MS: Final = 0.5
# Members of a group that are looked up before it is the next group's turn.
_MEMBERS_AT_ONCE: Final = 16
# What a connection is told in one write: about what one record of TLS holds.
_NOTICES_AT_ONCE: Final = 128


class MemberNotices:
    """What members are still to be told.

    Invariant: while there is something, one call for another turn is due, or is going on.
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
        # Groups in the order in which they come next, with the members that are left to be looked
        # up; None: none was yet.
        self._changed: dict[str, Iterator[CommandProtocol] | None] = {}
        # Connections in the order in which they come next, with the encoded notice of each group.
        self._untold: dict[CommandProtocol, dict[str, bytes]] = {}
        self._is_due = False

    def __len__(self) -> int:
        """Returns how many groups and connections wait."""
        return len(self._changed) + len(self._untold)

    def tell(self, group: str) -> None:
        """Has all members of a group told: NOTIFY_CONSUMER_IDS_CHANGED (40)."""
        # Who was told already is told again: since then something changed.
        self._changed[group] = None
        if not self._is_due:
            self._is_due = True
            self._soon(self._go_on)

    def _go_on(self) -> None:
        begun_ms = self._clock_ms()
        try:
            while self._changed and self._clock_ms() < begun_ms + NOTICES_MS / 2:
                group, members = next(iter(self._changed.items()))
                del self._changed[group]
                self._look_up_some(group, members or iter(tuple(self._members_of(group))))
            while self._untold and self._clock_ms() < begun_ms + NOTICES_MS:
                connection = next(iter(self._untold))
                self._tell_some(connection, self._untold.pop(connection))
        finally:
            # A write that fails closes its connection, and who leaves is told of by `tell`.
            self._is_due = bool(self)
            if self._is_due:
                self._soon(self._go_on)

    def _look_up_some(self, group: str, members: Iterator[CommandProtocol]) -> None:
        some = tuple(islice(members, _MEMBERS_AT_ONCE))
        if len(some) == _MEMBERS_AT_ONCE:
            # It is not its turn again before the others had theirs.
            self._changed[group] = members
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        command = RemotingCommand.request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, one_way=True
        )
        notice = encode(command)
        for connection in some:
            self._untold.setdefault(connection, {})[group] = notice

    def _tell_some(self, connection: CommandProtocol, notices: dict[str, bytes]) -> None:
        if not connection.is_open:
            return
        groups = tuple(islice(notices, _NOTICES_AT_ONCE))
        some = [notices.pop(group) for group in groups]
        if notices:
            self._untold[connection] = notices
        # Written now, not at the end of the turn: the write is most of the work, and counts.
        connection.send_parts([b"".join(some)])
