"""Members of a group are asked and told some at a time, and never behind what they do not read."""

from __future__ import annotations

import pytest
from twisted.internet.testing import MemoryReactorClock

from ledgermq.broker.clients import forwarding
from ledgermq.broker.clients.client_table import Client
from ledgermq.broker.dispatch import UNSENT_BYTES_MAX
from ledgermq.protocol.bodies import MessageQueue, ResetOffsetBody
from ledgermq.protocol.codes import LanguageCode, RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import ResetOffsetRequestHeader
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import InvalidRequestError
from tests.unit.protocol.wires import Recorder, Wire

HEADER = ResetOffsetRequestHeader(topic="T", group="g", timestamp=-1)
BODY = ResetOffsetBody({MessageQueue("T", "b", number): 7 for number in range(100)})


class Group:
    """Members with connections of memory."""

    def __init__(self, count: int, *, room: int = 1 << 40, version: int = 400) -> None:
        self.reactor = MemoryReactorClock()
        self.wires = [
            Wire(self.reactor, CommandProtocol(self.reactor, Recorder()), room)
            for _ in range(count)
        ]
        self.members = [
            (
                wire.protocol,
                Client(
                    client_id=f"c{number}",
                    language=LanguageCode.JAVA,
                    version=version,
                    address="",
                    seen_ms=0,
                ),
            )
            for number, wire in enumerate(self.wires)
        ]

    def told(self) -> list[list[int]]:
        """Returns the codes of what each was sent."""
        self.reactor.advance(0)
        return [[one.code for one in wire.socket.commands()] for wire in self.wires]


def test_members_are_told_of_offsets_some_at_a_time() -> None:
    group = Group(100)
    telling = forwarding._tell_members(group.members, HEADER, BODY)
    next(telling)
    assert sum(map(len, group.told())) <= 10
    pieces = sum(1 for _ in telling)
    assert pieces >= 10
    assert group.told() == [[RequestCode.RESET_CONSUMER_CLIENT_OFFSET]] * 100


@pytest.mark.parametrize(("body_bytes", "is_asked"), [(0, True), (3 << 20, False)])
def test_what_a_member_has_unread_and_would_have_is_bounded(
    body_bytes: int, is_asked: bool
) -> None:
    group = Group(1, room=0)
    [(member, client)] = group.members
    for _ in range(6):
        member.send(RemotingCommand(code=1, body=bytes(1 << 20)))
    assert 6 << 20 < member.unsent_bytes < UNSENT_BYTES_MAX
    if is_asked:
        forwarding._check_reads(member, client, body_bytes)
    else:
        with pytest.raises(InvalidRequestError, match="c0 has 629.* and would have 3145728 more"):
            forwarding._check_reads(member, client, body_bytes)


def test_offsets_are_set_for_all_members_or_for_none() -> None:
    group = Group(3, room=0)
    forwarding._check_members(group.members)
    group.members[1][0].send(RemotingCommand(code=1, body=bytes(9 << 20)))
    with pytest.raises(InvalidRequestError, match="consumer c1 has .* too slowly"):
        forwarding._check_members(group.members)
    with pytest.raises(InvalidRequestError, match="version=1"):
        forwarding._check_members(Group(1, version=1).members)
