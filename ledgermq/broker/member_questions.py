"""What a follower asks the broker that name servers call its master, with proofs both ways.

Whoever may register at a name server may say that it is the master. So where a broker has the
secret of its group, its questions for tables carry a strong signature (`protocol/signature.py`),
with a key of the secret and in the name of MEMBER, and the answer carries a proof:

    MemberGroup    name of the brokers that share the secret
    MemberTarget   "host:port" that was connected to; the master takes its own alone, so that nobody
                   passes a question on to it and brings back its answer
    MemberProof    of the answer: HMAC-SHA256, with another key, over the signature of the question,
                   the code of the answer and the SHA-256 of its body

A signature of MEMBER opens the tables that followers copy, and takes offsets that clients told them
and that they had a right to tell, and nothing else. Where the secret is
not required yet, what comes without a proof is taken and named.
"""

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from struct import Struct
from typing import Final

from twisted.internet.defer import Deferred

from ledgermq.broker.dispatch import Answer, Processor
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.signature import ACCESS_KEY, SIGNATURE, Credentials, unsigned
from ledgermq.protocol.signature_check import STRONG, SignatureCheck
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import AccessDeniedError

# No account has this name: a request of a client that has it is one of a member, or none.
MEMBER: Final = "%MEMBER%"
GROUP: Final = "MemberGroup"
TARGET: Final = "MemberTarget"
PROOF: Final = "MemberProof"
# What a follower may ask.
TABLES: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
)
CODES: Final = (*TABLES, RequestCode.UPDATE_CONSUMER_OFFSET)
NOT_PROVEN: Final = "it does not prove the group's secret (key dLegerGroupSecretFile)"
_QUESTIONS: Final = "state questions"
_ANSWERS: Final = "state answers"
_CODE: Final = Struct(">i")
# Told of a refusal: the address that it came from, the request, and why.
OnRefused = Callable[[str, RemotingCommand, AccessDeniedError], None]


class MemberQuestions:
    """The follower's end."""

    def __init__(self, group: str, secret: GroupSecret | None, *, is_required: bool) -> None:
        """
        Args:
            group: the name that master and followers share.
            secret: None where there is none; then nothing is proven.
            is_required: whether what comes without a proof is not taken.
        """
        self._group = group
        self._credentials = None if secret is None else _credentials(secret)
        self._answer_key = None if secret is None else secret.key(_ANSWERS)
        self.has_secret = secret is not None
        self.is_required = secret is not None and is_required

    def ask(
        self, code: RequestCode, address: str, fields: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        """Returns a question to the broker at "host:port"."""
        question = RemotingCommand.request(code)
        question.ext_fields = dict(fields) if fields else None
        if self._credentials is not None:
            own = {**unsigned(fields or {}), GROUP: self._group, TARGET: address}
            question.ext_fields = self._credentials.signed(own, b"", code)
        return question

    def doubt(self, question: RemotingCommand, answer: RemotingCommand) -> str | None:
        """Says why an answer is not known to be one of the group; None when it is, and where there
        is no secret.
        """
        if self._answer_key is None:
            return None
        given = (answer.ext_fields or {}).get(PROOF, "")
        right = _proof(self._answer_key, question, answer)
        is_right = given.isascii() and hmac.compare_digest(given, right)
        return None if is_right else NOT_PROVEN


class MemberAnswers:
    """The master's end."""

    def __init__(
        self,
        group: str,
        secret: GroupSecret,
        address: str,
        now_ms: Callable[[], float],
        clock_ms: Callable[[], float],
        on_refused: OnRefused | None = None,
    ) -> None:
        """
        Args:
            address: "host:port" of this broker, as name servers tell it.
            now_ms, clock_ms: wall clock and monotonic time.
            on_refused: told of each question that is refused; None: nobody is.
        """
        self._group = group
        self._address = address
        self._secret_key = _credentials(secret).secret_key
        self._answer_key = secret.key(_ANSWERS)
        self._signatures = SignatureCheck(STRONG, now_ms, clock_ms)
        self._on_refused = on_refused

    def around(
        self, table: Mapping[int, Processor], guarded: Mapping[int, Processor]
    ) -> dict[int, Processor]:
        """Returns the guarded processors; questions of members reach those of `table`."""
        return {
            code: self._opened(table[code], processor) if code in CODES else processor
            for code, processor in guarded.items()
        }

    def _opened(self, processor: Processor, guarded: Processor) -> Processor:
        def answer(connection: CommandProtocol, command: RemotingCommand) -> Answer:
            if (command.ext_fields or {}).get(ACCESS_KEY) != MEMBER:
                return guarded(connection, command)
            self._check(connection.peer_host, command)
            connection.account = connection.sight = None
            connection.is_trusted = True
            answered = processor(connection, command)
            if isinstance(answered, Deferred):
                return answered.addCallback(lambda later: self._proven(command, later))
            return self._proven(command, answered)

        return answer

    def _check(self, host: str, command: RemotingCommand) -> None:
        """
        Raises:
            AccessDeniedError: it is no question of a member to this broker.
        """
        fields = command.ext_fields or {}
        reason = None
        if fields.get(GROUP) != self._group or fields.get(TARGET) != self._address:
            reason = f"a question of a member for another broker than {self._address}"
        reason = reason or self._signatures.find_refusal(
            command.code, fields, command.body, MEMBER, self._secret_key
        )
        if reason is None:
            return
        error = AccessDeniedError(reason)
        if self._on_refused is not None:
            self._on_refused(host, command, error)
        raise error

    def _proven(
        self, question: RemotingCommand, answer: RemotingCommand | None
    ) -> RemotingCommand | None:
        if answer is not None:
            proof = _proof(self._answer_key, question, answer)
            answer.ext_fields = {**(answer.ext_fields or {}), PROOF: proof}
        return answer


def _credentials(secret: GroupSecret) -> Credentials:
    return Credentials(access_key=MEMBER, secret_key=secret.key(_QUESTIONS).hex(), form="strong")


def _proof(key: bytes, question: RemotingCommand, answer: RemotingCommand) -> str:
    signature = (question.ext_fields or {}).get(SIGNATURE, "").encode("utf-8", "surrogatepass")
    parts = (sha256(signature).digest(), _CODE.pack(answer.code), sha256(answer.body).digest())
    return hmac.digest(key, b"".join(parts), "sha256").hex()
