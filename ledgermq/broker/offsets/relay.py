"""OffsetRelay: offsets that clients tell a member that leads no longer.

Stock clients tell what they consumed by one-way requests (15), which nobody answers, and ask name
servers every 30 s who leads. After a change of leader they go on telling the former one meanwhile,
and one that ends then would begin again far behind. So a member that does not lead passes such
offsets on, each second the newest of each queue, to the leader that name servers tell.

What the leader has already, as far as its records tell, is left out, so that a late word does not
take a group back. A request is passed on only to who has proven on the same connection that it is
the leader (`leader_trust.py`), and in this member's name: the client had the right here, and signed
for this broker. Where members have no secret it is passed on as it came.
"""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList

from ledgermq.broker.leader_trust import LeaderTrust, Peer
from ledgermq.broker.leadership import Leadership
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import UpdateConsumerOffsetRequestHeader
from ledgermq.state.consumer_offsets import ConsumerOffsetTable

RELAY_INTERVAL_MS: Final = 1000
_ANSWER_MS: Final = 3000
# Queues of groups whose offsets wait, half of them of one account or address; more are dropped, as
# all were without a relay.
_WAITING_MAX: Final = 10_000
_OF_PAYER_MAX: Final = _WAITING_MAX // 2
_FIELDS_CHARS_MAX: Final = 4096
# Of them, what goes out in one round.
_ROUND_MAX: Final = 256
# Tries of one offset: by then its client has found the leader, or is gone.
_TRIES_MAX: Final = 60

# Group, topic, queue id.
_Key = tuple[str, str, int]


class _Told:
    """The newest word of a client about one queue."""

    __slots__ = ("ext_fields", "offset", "payer", "tries")

    def __init__(self, offset: int, ext_fields: dict[str, str], payer: str) -> None:
        self.offset = offset
        self.ext_fields = ext_fields
        # Who told it first.
        self.payer = payer
        self.tries = 0


class OffsetRelay:
    """Passes offsets on while this member does not lead.

    Invariant: `_of_payer` counts what waits by who told it first.
    """

    def __init__(
        self,
        leadership: Leadership,
        offsets: ConsumerOffsetTable,
        tell: Callable[[str, str, int, int], None],
        *,
        find_master: Callable[[], str | None],
        ask_for_master: Callable[[], None],
        connect: Callable[[str], Peer],
        trust: LeaderTrust,
    ) -> None:
        """Has nothing to pass on.

        Args:
            offsets: as the leader's records tell them.
            tell: takes an offset when this member leads: group, topic, queue id and offset.
            find_master: "host:port" of the group's leader for clients, as name servers told it
                last; None when they told none.
            ask_for_master: has name servers tell it again.
            connect: gives a connection that `stop` ends.
            trust: says whether who answers there is the leader.
        """
        self._leadership = leadership
        self._offsets = offsets
        self._tell = tell
        self._find_master = find_master
        self._ask_for_master = ask_for_master
        self._connect = connect
        self._trust = trust
        self._waiting: dict[_Key, _Told] = {}
        self._of_payer: Counter[str] = Counter()
        # The connection of a round that is under way.
        self._peer: Peer | None = None

    def take(
        self, header: UpdateConsumerOffsetRequestHeader, ext_fields: dict[str, str], payer: str
    ) -> None:
        """Notes what a client told; the next round passes it on.

        Args:
            header: as decoded.
            ext_fields: as they came.
            payer: account or address of the client.
        """
        key = (header.consumer_group, header.topic, header.queue_id)
        if sum(map(len, ext_fields)) + sum(map(len, ext_fields.values())) > _FIELDS_CHARS_MAX:
            # What no client says: it would be kept as it is.
            return
        former = self._waiting.get(key)
        if former is not None:
            self._waiting[key] = _Told(header.commit_offset, ext_fields, former.payer)
        elif len(self._waiting) < _WAITING_MAX and self._of_payer[payer] < _OF_PAYER_MAX:
            self._waiting[key] = _Told(header.commit_offset, ext_fields, payer)
            self._of_payer[payer] += 1

    def _drop(self, key: _Key) -> None:
        payer = self._waiting.pop(key).payer
        self._of_payer[payer] -= 1
        if not self._of_payer[payer]:
            del self._of_payer[payer]

    def run(self) -> None:
        """Begins a round, if something waits; called from time to time."""
        if self._peer is not None or not self._waiting:
            return
        if self._leadership.is_leader:
            if self._leadership.is_serving:
                self._store_here()
            return
        for (group, topic, queue_id), told in list(self._waiting.items()):
            told.tries += 1
            known = self._offsets.find(group, topic, queue_id)
            if told.tries > _TRIES_MAX or (known is not None and known >= told.offset):
                self._drop((group, topic, queue_id))
        master, leader_id = self._find_master(), self._leadership.leader_id
        if not self._waiting or master is None or leader_id is None:
            self._ask_again()
            return
        if self._trust.doubt_of_address(leader_id, master) is not None:
            self._ask_again()
            return
        peer = self._peer = self._connect(master)
        proven = self._trust.prove(peer, leader_id, master, _ANSWER_MS)
        # Who does not prove itself is told nothing; the next round asks again.
        proven.addCallback(lambda _: self._pass_on_oldest(peer, leader_id, master))
        proven.addBoth(lambda _: self._end_round())

    def _pass_on_oldest(self, peer: Peer, leader_id: str, master: str) -> Deferred[Any]:
        answers = []
        for key, told in list(islice(self._waiting.items(), _ROUND_MAX)):
            command = self._trust.telling(
                leader_id, RequestCode.UPDATE_CONSUMER_OFFSET, master, told.ext_fields
            )
            answers.append(self._pass_on(peer, command, key, told))
        return DeferredList(answers, consumeErrors=True)

    def _store_here(self) -> None:
        """This member leads again."""
        waiting, self._waiting = self._waiting, {}
        self._of_payer.clear()
        for (group, topic, queue_id), told in waiting.items():
            known = self._offsets.find(group, topic, queue_id)
            if known is not None and known < told.offset:
                self._tell(group, topic, queue_id, told.offset)

    def _pass_on(
        self, peer: Peer, command: RemotingCommand, key: _Key, told: _Told
    ) -> Deferred[None]:
        def answered(answer: RemotingCommand) -> None:
            # A refusal that time does not heal, or a newer word, are none of this one.
            if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE and self._waiting.get(key) is told:
                self._drop(key)

        return peer.request(command, _ANSWER_MS).addCallback(answered)

    def _end_round(self) -> None:
        if self._peer is not None:
            self.stop()
            self._ask_again()

    def _ask_again(self) -> None:
        """What name servers told may be the leader before."""
        if self._waiting:
            self._ask_for_master()

    def stop(self) -> Deferred[None] | None:
        """Ends a round that is under way; returns None when there is none."""
        peer, self._peer = self._peer, None
        return None if peer is None else peer.stop()
