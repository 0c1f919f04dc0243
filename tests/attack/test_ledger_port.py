"""Attacks on the ledger port of a closed group: who does not know its secret gets nowhere.

Three members on loopback, so that an attacker comes from an address of theirs. Each attack ends by
itself; after each of them the members lead, follow and commit as before, in the term that they had.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from ledgermq.dledger.entry import EntryCodec, EntryId
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    HeartBeatRequest,
    JsonCode,
    Message,
    TruncateRequest,
    VoteRequest,
)
from ledgermq.dledger.replica import greeting_bodies, wire_binary
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION, Hello
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import Challenge, Side, draw_nonce
from tests.e2e.replica_group import GROUP, SEGMENT_BYTES, Group, Member
from tests.free_ports import free_ports

SECRET, OTHER_SECRET = GroupSecret(b"s" * 32), GroupSecret(b"o" * 32)
LAST_TERM: Final = 2**63 - 1
# How long an attacker waits for what it should not get.
PATIENCE_S: Final = 5.0
FORGED: Final = EntryCodec(crc32c).encode(
    [b"forged"], first_index=0, term=1, position=0, previous_chain_crc=0
)


class Attacker(Protocol):
    """One connection: what came on it, and whether it is over."""

    transport: Any

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []
        self.is_over = False
        self._decoder = FrameDecoder()

    def dataReceived(self, data: bytes) -> None:
        self.answers += [decode(frame) for frame in self._decoder.feed(data)]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_over = True

    def send(self, *frames: bytes) -> None:
        if not self.is_over:
            self.transport.write(b"".join(frames))


def request(code: int, body: bytes) -> bytes:
    return encode(RemotingCommand(code=code, body=body, opaque=7))


def json_request(code: int, target: str, **fields: Any) -> bytes:
    ids = {"group": GROUP, "remoteId": target, "leaderId": "n1", "localId": "n1", "term": 1}
    return request(code, json.dumps({**ids, **fields}).encode())


def hello(target: str, sender: str, nonce: str = "") -> bytes:
    body = Hello(
        group=GROUP,
        sender=sender,
        target=target,
        segment_bytes=SEGMENT_BYTES,
        members=("n0", "n1", "n2"),
        nonce=nonce,
    )
    return request(BinaryCode.HELLO, greeting_bodies.encode_hello(body))


def binary(message: Message) -> bytes:
    return b"".join(wire_binary.encode(message))


class ClosedGroup(TestCase):
    timeout = 60
    changes: dict[str, Any] = {"group_secret": SECRET}

    async def setUp(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="attacked-"))
        self.addCleanup(shutil.rmtree, directory)
        self.group = Group(reactor, directory, free_ports(3), **self.changes)
        self.attackers: list[Attacker] = []
        self.addCleanup(self._stop)
        self.prepare(directory)
        await self.group.start()
        leader = await self.group.wait_for_leader()
        index = leader.running.propose([b"secret message"])[-1].last_index
        await self.group.wait_for_commit(leader.running, index)
        await self.group.wait_until_equal()
        self.index, self.term = index, leader.running.term

    def prepare(self, directory: Path) -> None:
        """Changes members before they start."""

    async def _stop(self) -> None:
        for attacker in self.attackers:
            attacker.transport.abortConnection()
        await self.group.stop()

    async def attack(self, victim: Member, *frames: bytes) -> Attacker:
        """Sends frames on a connection of its own, and waits for an answer or the end."""
        port = victim.config.addresses()[victim.config.self_id].port
        endpoint: Any = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        attacker: Attacker = await connectProtocol(endpoint, Attacker())
        self.attackers.append(attacker)
        attacker.send(*frames)
        return attacker

    async def end_of(self, attacker: Attacker) -> None:
        await self.group.wait(lambda: attacker.is_over, "the end of a connection", PATIENCE_S)

    def victims(self) -> list[Member]:
        """The leader and a follower."""
        leader = self.group.find_leader()
        assert leader is not None
        return [leader, next(member for member in self.group.up if member is not leader)]

    async def assert_unharmed(self) -> None:
        """The group commits on all members, in the term it had, and has nothing but its own."""
        leader = await self.group.wait_for_leader()
        index = leader.running.propose([b"afterwards"])[-1].last_index
        await self.group.wait(
            lambda: all(member.running.commit_index >= index for member in self.group.up),
            "a commit on all members",
        )
        for member in self.group.up:
            self.assertIsNone(member.running.failure)
            self.assertEqual(member.running.term, self.term)
            self.assertEqual(set(member.bodies()), {b"term %d opens" % self.term, *BODIES})


BODIES: Final = (b"secret message", b"afterwards")


class LedgerPortAttacks(ClosedGroup):
    async def test_json_reads_nothing_hands_nothing_over_and_forges_nothing(self) -> None:
        for victim in self.victims():
            target = victim.config.self_id
            other = next(id_ for id_ in self.group.members if id_ != target)
            attacks: list[tuple[int, dict[str, Any]]] = [
                (JsonCode.METADATA, {}),
                (JsonCode.GET, {"beginIndex": self.index}),
                (JsonCode.APPEND, {"body": "Zm9yZ2Vk"}),
                (JsonCode.LEADERSHIP_TRANSFER, {"transferId": target, "transfereeId": other}),
                (JsonCode.VOTE, {"leaderId": other, "term": LAST_TERM}),
                (JsonCode.HEART_BEAT, {"leaderId": other, "term": LAST_TERM}),
                (JsonCode.PUSH, {"leaderId": other, "type": "COMMIT", "term": self.term}),
                (JsonCode.PUSH, {"leaderId": other, "type": "COMMIT", "term": LAST_TERM}),
            ]
            for code, fields in attacks:
                attacker = await self.attack(victim, json_request(code, target, **fields))
                await self.end_of(attacker)
                for answer in attacker.answers:
                    body = json.loads(answer.body)
                    self.assertEqual(body["code"], 401)
                    self.assertFalse(body.get("entries") or body.get("leaderId"))
        await self.assert_unharmed()

    async def test_frames_of_a_member_without_a_proof_are_not_taken(self) -> None:
        for victim in self.victims():
            target = victim.config.self_id
            sender = next(id_ for id_ in self.group.members if id_ != target)
            ids = {"sender": sender, "target": target}
            messages: list[Message] = [
                HeartBeatRequest(term=LAST_TERM, commit_index=None, read_round=1, **ids),
                VoteRequest(term=LAST_TERM, last_index=99, last_term=LAST_TERM, **ids),
                CommitRequest(term=self.term, commit_index=self.index, request_id=1, **ids),
                AppendRequest(
                    term=self.term,
                    entries=FORGED,
                    previous=EntryId(-1, -1),
                    commit_index=self.index,
                    request_id=2,
                    **ids,
                ),
                TruncateRequest(term=self.term, entry=FORGED, commit_index=0, request_id=3, **ids),
            ]
            for greeting in (b"", hello(target, sender), hello(target, sender, draw_nonce())):
                for message in messages:
                    attacker = await self.attack(victim, greeting, binary(message))
                    await self.end_of(attacker)
        await self.assert_unharmed()

    async def test_proofs_of_another_secret_reflected_and_replayed_ones_are_refused(self) -> None:
        victim = self.victims()[0]
        target = victim.config.self_id
        sender = next(id_ for id_ in self.group.members if id_ != target)

        def prove(key: bytes, side: Side, told: Challenge) -> str:
            return told.proof(key, side)

        own, other = SECRET.key("members"), OTHER_SECRET.key("members")
        former: list[str] = []
        makers: list[Callable[[Challenge, str], str]] = [
            lambda told, _: prove(other, Side.OPENER, told),
            # What the victim itself proved with.
            lambda _, proof: proof,
            # A right proof of this connection is noted, and sent on the next one.
            lambda told, _: former.append(prove(own, Side.OPENER, told)) or "",
            lambda *_: former[0],
        ]
        nonce = draw_nonce()
        for make in makers:
            attacker = await self.attack(victim, hello(target, sender, nonce))
            await self.group.wait(lambda one=attacker: one.answers, "a challenge", PATIENCE_S)
            told = greeting_bodies.decode_hello_answer(attacker.answers[0].body)
            challenge = Challenge(
                f"ledger {WIRE_VERSION}", GROUP, sender, target, nonce, told.nonce
            )
            proof = make(challenge, told.proof)
            attacker.send(request(BinaryCode.PROOF, greeting_bodies.encode_proof(proof)))
            await self.end_of(attacker)
            self.assertEqual([answer.code for answer in attacker.answers], [0, 401])
        self.assertIn(
            f"{sender} at 127.0.0.1: another group secret", victim.running.refusals.texts()
        )
        await self.assert_unharmed()

    async def test_half_greetings_by_the_hundred_and_big_frames_hold_nothing(self) -> None:
        victim = self.victims()[0]
        target = victim.config.self_id
        big = (16 << 20).to_bytes(4, "big")
        attacker = await self.attack(victim, big, b"x" * 100_000)
        await self.end_of(attacker)
        halves = []
        for i in range(300):
            half = hello(target, "n1", draw_nonce())[: 20 + i % 100]
            halves.append(await self.attack(victim, half))
            if i % 50 == 49:
                # Not more at once than a port takes of one address.
                await deferLater(reactor, 0.5, lambda: None)
        await self.group.wait(
            lambda: sum(not one.is_over for one in halves) <= 64, "the end of most halves"
        )
        # A member that starts anew comes in beside them.
        follower = self.victims()[1]
        await follower.stop()
        await follower.start(follower.applier.ranges[-1][1] - 1)
        await self.assert_unharmed()


class OpenGroup(ClosedGroup):
    """The same without a secret: what a group is that is not closed."""

    changes: dict[str, Any] = {}

    async def test_whoever_reaches_the_port_reads_the_log(self) -> None:
        leader = self.victims()[0]
        read = json_request(JsonCode.GET, leader.config.self_id, beginIndex=self.index)
        attacker = await self.attack(leader, read)
        await self.group.wait(lambda: attacker.answers, "an answer", PATIENCE_S)
        self.assertTrue(json.loads(attacker.answers[0].body)["entries"])

    async def test_a_forged_contradiction_ends_no_member(self) -> None:
        """As the leader, from its address: another term for an entry that is committed."""
        leader, victim = self.victims()
        ids = {"sender": leader.config.self_id, "target": victim.config.self_id}
        forged = EntryCodec(crc32c).encode(
            [b"forged"],
            first_index=self.index + 1,
            term=self.term,
            position=victim.running.store.end_position,
            previous_chain_crc=0,
        )
        message = AppendRequest(
            term=self.term,
            entries=forged,
            previous=EntryId(self.term - 1, self.index),
            commit_index=self.index,
            request_id=2,
            **ids,
        )
        for count in range(3):
            attacker = await self.attack(victim, hello(ids["target"], ids["sender"]))
            await self.group.wait(lambda one=attacker: one.answers, "the greeting", PATIENCE_S)
            attacker.send(binary(message))
            if count == 0:
                await self.end_of(attacker)
        alarm = victim.running.membership.alarm
        assert alarm is not None
        self.assertIn("committed entry", alarm)
        # The leader is ignored for as long as it may be the one that contradicts.
        await self.group.wait(
            lambda: victim.running.leader_id == ids["sender"], "the leader", 4 * PATIENCE_S
        )
        await self.assert_unharmed()
        self.assertIsNone(victim.running.membership.alarm)


class FromOpenToClosed(ClosedGroup):
    """Each member starts anew twice: first it knows the secret, then it requires it."""

    changes: dict[str, Any] = {}

    async def test_a_group_closes_member_by_member_and_takes_proposals_all_the_while(self) -> None:
        count = 0
        for changes in (
            {"group_secret": SECRET, "requires_secret": False},
            {"group_secret": SECRET, "requires_secret": True},
        ):
            for member in self.group.members.values():
                await member.stop()
                leader = await self.group.wait_for_leader()
                index = leader.running.propose([b"meanwhile"])[-1].last_index
                await self.group.wait_for_commit(leader.running, index)
                member.config = replace(member.config, **changes)
                await member.start(member.applier.ranges[-1][1] - 1)
                await self.group.wait_for_leader()
                await self.group.wait_until_equal()
                count += 1
        self.assertEqual(count, 6)
        await self.group.wait_for_leader()
        texts = [text for one in self.group.up for text in one.running.refusals.texts()]
        self.assertFalse([text for text in texts if "let in" not in text], texts)
        leader = self.victims()[0]
        attacker = await self.attack(leader, hello(leader.config.self_id, "n1"))
        await self.end_of(attacker)


class WrongSecret(TestCase):
    timeout = 60

    async def test_a_member_with_another_secret_is_out_and_named_on_both_sides(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="attacked-"))
        self.addCleanup(shutil.rmtree, directory)
        group = Group(reactor, directory, free_ports(3), is_in_memory=True, group_secret=SECRET)
        odd = Group(
            reactor,
            directory,
            [member.config.addresses()[id_].port for id_, member in group.members.items()],
            is_in_memory=True,
            group_secret=OTHER_SECRET,
        ).members["n2"]
        self.addCleanup(odd.stop)
        for member in group.members.values():
            self.addCleanup(member.stop)
        for id_ in ("n0", "n1"):
            await group.members[id_].start()
        await odd.start()
        text = "127.0.0.1: another group secret"
        n0, n2 = group.members["n0"].running.refusals, odd.running.refusals
        await group.wait(lambda: f"n2 at {text}" in n0.texts(), "the refusal at n0")
        await group.wait(lambda: f"n0 at {text}" in n2.texts(), "the refusal at n2")
        self.assertIsNone(odd.running.leader_id)
