"""Greetings: how a connection to a member's port becomes one of a member of the group.

    strange  -> HELLO ->  greeted                            no secret here, or none is asked for
             -> HELLO ->  challenged  -> PROOF ->  greeted   both have the group's secret
             -> anything else, or a refusal ->  closed

HELLO names group, both members, the format's version and the segment size, and must come from an
address of its sender (`member_addresses.py`). Where both ends have a secret its answer is a
challenge and this member's own proof, so that the sender knows whom it has reached; PROOF answers
it. In a closed group nothing is taken on a connection before that; there its frames are small, its
time is short, and there are few such connections: a new one pushes out the oldest of the address
that has most of them. Whoever is refused there is told no more than that.

Where the secret is known but not required, who proves nothing is let in all the same, and named
among the refusals: so a group moves from open to closed member by member.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import Logger

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.membership import find_mismatch, members_text
from ledgermq.dledger.messages import DLedgerCode
from ledgermq.dledger.replica import greeting_bodies
from ledgermq.dledger.replica.admission import (
    ANOTHER_SECRET,
    GREETING_BYTES_MAX,
    GREETING_S_MAX,
    NO_SECRET,
    Admission,
)
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION, Hello
from ledgermq.dledger.replica.json_bodies import RequestBody
from ledgermq.dledger.replica.member_addresses import MemberAddresses
from ledgermq.dledger.replica.peers import MemberEvents
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.member_proof import Challenge, Side, draw_nonce, is_nonce
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.plain_text import escaped
from ledgermq.protocol.transport import CommandProtocol

# Connections of a closed group of which nobody knows whose they are.
_STRANGE_MAX: Final = 64
# No bound beside that of all frames.
_ANY_BYTES: Final = 1 << 31
# Of a reason in the log, and of what a peer is told.
_TEXT_MAX: Final = 300
# Known not to belong together; one more, and all are logged anew.
_REFUSED_SOURCES_MAX: Final = 256
_SUCCESS: Final = 0
# What a stranger of a closed group is told.
_NOT_TOLD: Final = "refused; the log of the other end says why"
_STRANGER: Final = "a stranger"

_log = Logger()

# Under which a waiting JSON request is found by its answer: a vote by candidate and term, all else
# by the number it was given.
Key = tuple[str, int] | int


class Link:
    """What is known of one connection."""

    __slots__ = (
        "challenge",
        "has_complained",
        "hello",
        "last_chain_crc",
        "last_id",
        "number",
        "peer_id",
        "waiting",
    )

    def __init__(self, number: int) -> None:
        # Of this connection, from 1.
        self.number = number
        # Member at the other end, once it was greeted.
        self.peer_id: str | None = None
        # What HELLO said, and what PROOF has to prove; None before, and when PROOF has come.
        self.hello: Hello | None = None
        self.challenge: Challenge | None = None
        # Last entry that came here, and its chain checksum: what the next run must continue.
        self.last_id: EntryId | None = None
        self.last_chain_crc = 0
        # JSON requests that wait for their answers, oldest first.
        self.waiting: dict[Key, tuple[int, RemotingCommand, RequestBody]] = {}
        # A refusal was logged for this connection.
        self.has_complained = False


class Greetings:
    """Who the connections of one port are."""

    def __init__(
        self,
        config: ReplicaConfig,
        segment_bytes: int,
        events: MemberEvents,
        sources: MemberAddresses,
        admission: Admission,
        welcome: Callable[[CommandProtocol, str], None],
    ) -> None:
        """
        Args:
            config: of this member.
            segment_bytes: of its store.
            events: told what the programs of others read, and whom this member refuses.
            sources: knows from where each member may speak.
            admission: knows what each has to prove.
            welcome: called with a connection and its member, before that is told so.
        """
        self._config = config
        self._segment_bytes = segment_bytes
        self._events = events
        self._sources = sources
        self._admission = admission
        self._welcome_member = welcome
        self._peer_ids = frozenset(config.addresses()) - {config.self_id}
        # Connections of a closed group that have not shown who they are, oldest first.
        self._strange: dict[int, CommandProtocol] = {}
        # Members and addresses that were logged as not belonging together.
        self._refused_sources: set[tuple[str, str]] = set()

    # What the listener tells.

    def begin(self, connection: CommandProtocol) -> None:
        """Takes a new connection."""
        if not self._admission.is_closed:
            return
        admission, sources = self._admission, self._sources
        # A Java member does not greet: its first frame may be any.
        is_java = admission.is_java_place(connection, sources)
        connection.begin_greeting(GREETING_S_MAX, _ANY_BYTES if is_java else GREETING_BYTES_MAX)
        self._strange[connection.context.number] = connection
        if len(self._strange) > _STRANGE_MAX:
            # Whoever comes from where no member is goes first, however many addresses they have.
            others = [
                one for one in self._strange.values() if not admission.is_known_place(one, sources)
            ]
            oldest = _oldest_of_most(others or list(self._strange.values()))
            self.end(oldest)
            oldest.abort(f"{_STRANGE_MAX} connections have not said who they are")

    def end(self, connection: CommandProtocol) -> None:
        """Takes the end of a connection, or that it may say what its source may."""
        self._strange.pop(connection.context.number, None)
        connection.end_greeting()

    def hello(self, connection: CommandProtocol, command: RemotingCommand) -> None:
        """Answers HELLO."""
        link: Link = connection.context
        if link.peer_id is not None or link.hello is not None:
            self.close(connection, "HELLO came twice")
            return
        try:
            hello = greeting_bodies.decode_hello(command.body)
        except RemoteProtocolError as error:
            self._refuse(connection, command, DLedgerCode.UNEXPECTED_ARGUMENT, str(error))
            return
        code, reason = self._find_refusal(hello)
        if reason:
            self._refuse(connection, command, code, reason, hello.sender)
        elif self._sources.may_be(hello.sender, connection):
            self._admit(connection, command, hello)
        else:
            link.hello = hello
            looked = self._sources.look_again(hello.sender)
            looked.addCallback(lambda _: self._hello_again(connection, command, hello))

    def _find_refusal(self, hello: Hello) -> tuple[DLedgerCode, str]:
        """Says why a greeting cannot be one of a member; an empty text when it can."""
        config = self._config
        if hello.group != config.group:
            reason = f"group is {hello.group!r}, here it is {config.group!r}"
            return DLedgerCode.UNKNOWN_GROUP, reason
        if hello.target != config.self_id:
            reason = f"member {hello.target!r} was asked for, here is {config.self_id!r}"
            return DLedgerCode.UNKNOWN_MEMBER, reason
        if hello.sender not in self._peer_ids:
            own = members_text(self._events.cluster.members)
            reason = (
                f"member {hello.sender!r}, whose member list is {members_text(hello.members)}, is"
                f" not a member of this group: {own} (key dLegerPeers)"
            )
            return DLedgerCode.UNKNOWN_MEMBER, reason
        if hello.version != WIRE_VERSION:
            reason = f"wire version is {hello.version}, here it is {WIRE_VERSION}"
            return DLedgerCode.UNSUPPORTED, reason
        if hello.segment_bytes != self._segment_bytes:
            reason = f"segments have {hello.segment_bytes} bytes, here {self._segment_bytes}"
            return DLedgerCode.UNEXPECTED_ARGUMENT, reason
        if hello.nonce and not is_nonce(hello.nonce):
            return DLedgerCode.UNEXPECTED_ARGUMENT, "its nonce is none"
        if self._admission.requires_proof and not hello.nonce:
            return DLedgerCode.UNKNOWN_MEMBER, NO_SECRET
        return DLedgerCode.SUCCESS, ""

    def _hello_again(
        self, connection: CommandProtocol, command: RemotingCommand, hello: Hello
    ) -> None:
        """Takes a greeting, or not, now that the names of its sender were looked up.

        A connection that is refused is closed: the sender comes again, perhaps when its name says
        where it is.
        """
        if not connection.is_open:
            return
        connection.context.hello = None
        if self._sources.may_be(hello.sender, connection):
            self._admit(connection, command, hello)
            return
        reason = self._sources.refusal(hello.sender, connection)
        self.complain_of_source(connection, hello.sender)
        told = _NOT_TOLD if self._admission.is_closed else reason
        connection.send(command.response(DLedgerCode.UNKNOWN_MEMBER, told))
        connection.close(reason)

    def _admit(self, connection: CommandProtocol, command: RemotingCommand, hello: Hello) -> None:
        """Asks a member for a proof, or takes it as it is."""
        admission, link = self._admission, connection.context
        refusal = admission.refusal_of_certificate(hello.sender, connection)
        if refusal is not None:
            if admission.tls is not None and admission.tls.is_required:
                code = DLedgerCode.UNKNOWN_MEMBER
                self._refuse(connection, command, code, refusal, hello.sender)
                return
            self._events.refusals.note(hello.sender, connection.peer_host, f"let in: {refusal}")
        if admission.key is None:
            self._welcome(connection, command, hello)
            return
        if not hello.nonce:
            self._events.refusals.note(hello.sender, connection.peer_host, f"let in: {NO_SECRET}")
            self._welcome(connection, command, hello)
            return
        nonce = draw_nonce()
        challenge = admission.challenge(hello.sender, hello.target, hello.nonce, nonce)
        link.hello, link.challenge = hello, challenge
        proof = challenge.proof(admission.key, Side.ANSWERER)
        body = greeting_bodies.encode_hello_answer(
            self._events.formats.own, nonce=nonce, proof=proof
        )
        connection.send(command.response(_SUCCESS, body=body))

    def proof(self, connection: CommandProtocol, command: RemotingCommand) -> None:
        """Answers PROOF; a challenge serves once."""
        link: Link = connection.context
        hello, challenge, key = link.hello, link.challenge, self._admission.key
        link.hello = link.challenge = None
        if hello is None or challenge is None or key is None:
            self.close(connection, "PROOF before HELLO")
            return
        try:
            proof = greeting_bodies.decode_proof(command.body)
        except RemoteProtocolError as error:
            self._refuse(connection, command, DLedgerCode.UNEXPECTED_ARGUMENT, str(error))
            return
        if challenge.is_proven(key, Side.OPENER, proof):
            self._events.refusals.forget(hello.sender, connection.peer_host)
        elif self._admission.requires_proof:
            code = DLedgerCode.UNKNOWN_MEMBER
            self._refuse(connection, command, code, ANOTHER_SECRET, hello.sender)
            return
        else:
            reason = f"let in: {ANOTHER_SECRET}"
            self._events.refusals.note(hello.sender, connection.peer_host, reason)
        self._welcome(connection, command, hello)

    def _welcome(self, connection: CommandProtocol, command: RemotingCommand, hello: Hello) -> None:
        """Takes a member for one, unless one of the two does not read what the other has."""
        formats, cluster = self._events.formats, self._events.cluster
        mode = self._config.flush_disk_type
        told = greeting_bodies.encode_hello_answer(formats.own, cluster, flush_mode=mode)
        mismatch = find_mismatch(hello.sender, hello.cluster, cluster)
        if mismatch is not None:
            refusals = self._events.refusals
            refusals.note(hello.sender, connection.peer_host, mismatch, is_membership=True)
            # The remark is for the log of the sender, so it takes the sender's point of view.
            remark = find_mismatch(self._config.self_id, cluster, hello.cluster)
            connection.send(command.response(DLedgerCode.UNEXPECTED_MEMBER, remark, body=told))
            return
        mismatch = formats.asked_by(hello.sender, hello.formats)
        if mismatch is not None:
            self._complain(connection, mismatch)
            connection.send(command.response(DLedgerCode.UNSUPPORTED, mismatch, body=told))
            return
        self.end(connection)
        self._welcome_member(connection, hello.sender)
        connection.send(command.response(_SUCCESS, body=told))

    # Refusals.

    def _refuse(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        code: DLedgerCode,
        reason: str,
        sender: str = _STRANGER,
    ) -> None:
        """Answers a greeting that is none; a closed group ends the connection, too."""
        who = sender if sender in self._peer_ids else _STRANGER
        if not self._admission.is_closed:
            if code is DLedgerCode.UNKNOWN_MEMBER:
                # It asks again each second.
                self._events.refusals.note(who, connection.peer_host, reason)
            else:
                self._complain(connection, reason)
            connection.send(command.response(code, reason[:_TEXT_MAX]))
            return
        self._events.refusals.note(who, connection.peer_host, reason)
        is_about_secret = reason in (NO_SECRET, ANOTHER_SECRET)
        told = reason if is_about_secret else _NOT_TOLD
        connection.send(command.response(DLedgerCode.UNKNOWN_MEMBER, told))
        connection.close(reason)

    def close(self, connection: CommandProtocol, reason: str) -> None:
        """Ends a connection that does not keep to the order of a greeting."""
        self.complain(connection, reason)
        connection.close(reason)

    def complain_of_source(self, connection: CommandProtocol, peer_id: str) -> None:
        """Logs that a source may not be a member, if so, once however often it connects."""
        source = peer_id, connection.peer_host
        if source in self._refused_sources or self._sources.may_be(peer_id, connection):
            return
        if len(self._refused_sources) >= _REFUSED_SOURCES_MAX:
            self._refused_sources.clear()
        self._refused_sources.add(source)
        self.complain(connection, self._sources.refusal(peer_id, connection), peer_id)

    def complain(self, connection: CommandProtocol, reason: str, sender: str | None = None) -> None:
        """Logs the first refusal of a connection; in a closed group, of a source."""
        link: Link = connection.context
        if self._admission.is_closed and link.peer_id is None:
            self._events.refusals.note(sender or _STRANGER, connection.peer_host, reason)
        else:
            self._complain(connection, reason)

    def _complain(self, connection: CommandProtocol, reason: str) -> None:
        link: Link = connection.context
        if not link.has_complained:
            link.has_complained = True
            _log.warn(
                "{self_id}: refusing {peer}: {reason}",
                self_id=self._config.self_id,
                peer=connection.peer,
                reason=escaped(reason[:_TEXT_MAX]),
            )


def _oldest_of_most(connections: Sequence[CommandProtocol]) -> CommandProtocol:
    """Returns the first one of the address, or network, that has most of them."""
    (most, _), *_ = Counter(network_of(one.peer_host) for one in connections).most_common(1)
    return next(one for one in connections if network_of(one.peer_host) == most)
