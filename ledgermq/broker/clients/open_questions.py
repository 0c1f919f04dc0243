"""OpenQuestions: what clients were asked for others, as long as they have not answered.

Whoever has a client asked waits for its word, and the broker keeps the request meanwhile. The
client may be one of the same owner, which reads all questions and answers none: so what is kept is
bounded, of who asks, at one client, and of all. The reactor's thread.
"""

from collections import Counter
from typing import Any, Final

from twisted.internet.defer import Deferred

from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol, payer_of
from ledgermq.state.errors import InvalidRequestError, SystemBusyError

# One alone may be of any size.
CLIENT_BYTES_MAX: Final = 16 << 20
PAYER_BYTES_MAX: Final = 48 << 20
ALL_BYTES_MAX: Final = 128 << 20
# Of a question, besides what stands in it: its command, Deferreds, and the call that ends it.
_QUESTION_BYTES: Final = 2048
_FIELD_BYTES: Final = 128


class OpenQuestions:
    """Asks clients, and counts.

    Invariant: the counts are those of the questions without an answer; nobody's is 0.
    """

    def __init__(self) -> None:
        """Begins with none."""
        # By account, or address, of who has them asked.
        self._of_payer: Counter[str] = Counter()
        self._of_client: Counter[CommandProtocol] = Counter()

    @property
    def held_bytes(self) -> int:
        """What is kept for all of them."""
        return self._of_payer.total()

    def ask(
        self,
        asker: CommandProtocol,
        command: RemotingCommand,
        client: CommandProtocol,
        question: RemotingCommand,
        timeout_ms: int,
    ) -> Deferred[RemotingCommand]:
        """Asks a client.

        Args:
            asker: who has it asked.
            command: what for; it is kept until the answer is there.
            client: who is asked.
            question: what it is sent.
            timeout_ms: how long its answer is waited for.

        Returns:
            As `CommandProtocol.request`.

        Raises:
            SystemBusyError: too much is kept already, of who asks or of all.
            InvalidRequestError: the client owes too many answers.
        """
        payer, size = payer_of(asker), _held_bytes(command)
        self._check_room(payer, client, size)
        self._of_payer[payer] += size
        self._of_client[client] += size
        answered = client.request(question, timeout_ms)
        answered.addBoth(self._ended, payer, client, size)
        return answered

    def _check_room(self, payer: str, client: CommandProtocol, size: int) -> None:
        held = self._of_client.get(client, 0)
        if held and held + size > CLIENT_BYTES_MAX:
            raise InvalidRequestError(
                f"the client at {client.peer} has not answered questions of {held} bytes, allowed"
                f" are {CLIENT_BYTES_MAX}: it answers too slowly"
            )
        held = self._of_payer.get(payer, 0)
        if held and held + size > PAYER_BYTES_MAX:
            raise SystemBusyError(
                f"system busy: {held} bytes of {payer[:128]} wait for the word of clients and"
                f" {size} more came; allowed are {PAYER_BYTES_MAX}"
            )
        held = self.held_bytes
        if held and held + size > ALL_BYTES_MAX:
            raise SystemBusyError(
                f"system busy: {held} bytes wait for the word of clients and {size} more came;"
                f" allowed are {ALL_BYTES_MAX}"
            )

    def _ended(self, result: Any, payer: str, client: CommandProtocol, size: int) -> Any:
        self._of_payer[payer] -= size
        if not self._of_payer[payer]:
            del self._of_payer[payer]
        self._of_client[client] -= size
        if not self._of_client[client]:
            del self._of_client[client]
        return result


def _held_bytes(command: RemotingCommand) -> int:
    fields = command.ext_fields or {}
    texts = sum(len(name) + len(value) for name, value in fields.items())
    return _QUESTION_BYTES + _FIELD_BYTES * len(fields) + texts + len(command.body)
