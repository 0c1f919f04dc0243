"""Somebody listens where members of a closed group should be, and does not know its secret: the
member that connects there says who it is, and not a word more.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from ledgermq.dledger.formats import Formats
from ledgermq.dledger.replica import greeting_bodies
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION, Hello
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import Challenge, Side, draw_nonce
from tests.e2e.replica_group import GROUP, Group
from tests.free_ports import free_ports

REACTOR: Any = reactor
SECRET, OTHER_SECRET = GroupSecret(b"s" * 32), GroupSecret(b"o" * 32)
FORMATS: Final = Formats()
# What answers a greeting: code, nonce, proof.
Answer = tuple[int, str, str]


def proof(hello: Hello, nonce: str, side: Side, secret: GroupSecret, **changes: str) -> str:
    """Of a challenge between the two, or of one that differs."""
    challenge = Challenge(
        f"ledger {WIRE_VERSION}", GROUP, hello.sender, hello.target, hello.nonce, nonce
    )
    return challenge._replace(**changes).proof(secret.key("members"), side)


def no_proof(hello: Hello) -> Answer:
    return 0, "", ""


def a_program_of_java(hello: Hello) -> Answer:
    return 3, "", ""


def another_secret(hello: Hello) -> Answer:
    nonce = draw_nonce()
    return 0, nonce, proof(hello, nonce, Side.ANSWERER, OTHER_SECRET)


def proof_of_the_asker(hello: Hello) -> Answer:
    """As the member itself would prove, had it been asked the same."""
    return 0, hello.nonce, proof(hello, hello.nonce, Side.OPENER, SECRET)


def proof_of_an_earlier_time(hello: Hello) -> Answer:
    nonce = draw_nonce()
    return 0, nonce, proof(hello, nonce, Side.ANSWERER, SECRET, opener_nonce=draw_nonce())


def proof_of_another_member(hello: Hello) -> Answer:
    nonce = draw_nonce()
    return 0, nonce, proof(hello, nonce, Side.ANSWERER, SECRET, answerer="n9")


def proof_for_another_member(hello: Hello) -> Answer:
    nonce = draw_nonce()
    return 0, nonce, proof(hello, nonce, Side.ANSWERER, SECRET, opener="n9")


def proof_of_another_version(hello: Hello) -> Answer:
    nonce = draw_nonce()
    changed = proof(hello, nonce, Side.ANSWERER, SECRET, protocol=f"ledger {WIRE_VERSION - 1}")
    return 0, nonce, changed


def nonce_that_is_none(hello: Hello) -> Answer:
    return 0, "0", proof(hello, "0", Side.ANSWERER, SECRET)


LIES: Final = (
    no_proof, a_program_of_java, another_secret, proof_of_the_asker, proof_of_an_earlier_time,
    proof_of_another_member, proof_for_another_member, proof_of_another_version,
    nonce_that_is_none,
)  # fmt: skip


class FalseMember(Protocol):
    """Answers each HELLO with a lie, and notes what else comes."""

    transport: Any

    def __init__(self, lie: Callable[[Hello], Answer], codes: list[int]) -> None:
        self._lie, self._codes, self._decoder = lie, codes, FrameDecoder()

    def dataReceived(self, data: bytes) -> None:
        for command in map(decode, self._decoder.feed(data)):
            self._codes.append(command.code)
            if command.code == BinaryCode.HELLO:
                self.transport.write(encode(self._answer(command)))

    def _answer(self, command: RemotingCommand) -> RemotingCommand:
        hello = greeting_bodies.decode_hello(command.body)
        code, nonce, given = self._lie(hello)
        body = greeting_bodies.encode_hello_answer(FORMATS, nonce=nonce, proof=given)
        return command.response(code, body=body)


class FalseMembers(TestCase):
    timeout = 60

    async def test_who_cannot_prove_the_secret_is_told_nothing_behind_the_greeting(self) -> None:
        for lie in LIES:
            await self._meet(lie)

    async def _meet(self, lie: Callable[[Hello], Answer]) -> None:
        directory = Path(tempfile.mkdtemp(prefix="false-members-"))
        self.addCleanup(shutil.rmtree, directory)
        ports, codes = free_ports(3), list[int]()
        for port in ports[1:]:
            factory: Any = Factory()
            factory.noisy = False
            factory.buildProtocol = lambda _: FalseMember(lie, codes)
            listening = REACTOR.listenTCP(port, factory, interface="127.0.0.1")
            self.addCleanup(listening.stopListening)
        group = Group(reactor, directory, ports, is_in_memory=True, group_secret=SECRET)
        member = group.members["n0"]
        await member.start()
        try:
            await group.wait(lambda: len(codes) >= 2, f"a greeting, {lie.__name__}")
            await group.wait(lambda: member.running.refusals.texts(), f"a refusal, {lie.__name__}")
            # Time for a vote, or a sign of life.
            await deferLater(REACTOR, 0.3, lambda: None)
            self.assertEqual(set(codes), {BinaryCode.HELLO}, lie.__name__)
            self.assertIsNone(member.running.leader_id)
        finally:
            await member.stop()
