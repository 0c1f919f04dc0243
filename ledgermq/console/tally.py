"""Tally: who was asked for an answer, and who stayed silent."""

from ledgermq.client.errors import ClientError, RefusedError
from ledgermq.console.answers import TEXT_CHARS_MAX
from ledgermq.console.shapes.elements import Answers, Silent
from ledgermq.protocol.errors import ProtocolError

# What a question to a server may end with.
FAILURES = (ClientError, ProtocolError)


class Tally:
    """Counts servers, not requests."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        # Address -> who that is, and why nothing came.
        self._silent: dict[str, tuple[str, str]] = {}

    def asked(self, address: str) -> None:
        """Notes that a server is asked."""
        self._asked.add(address)

    def failed(self, who: str, address: str, error: Exception) -> None:
        """Notes that nothing came of it; the first reason stays."""
        self.missed(who, address, reason_of(error))

    def missed(self, who: str, address: str, reason: str) -> None:
        """Notes that a server could not be asked."""
        self._asked.add(address)
        self._silent.setdefault(address, (who, reason))

    def add(self, other: "Tally") -> None:
        """Takes over what another one has counted."""
        self._asked |= other._asked
        for address, silent in other._silent.items():
            self._silent.setdefault(address, silent)

    def answers(self) -> Answers:
        """Returns the count."""
        silent = [
            Silent(who=who, address=address, reason=reason)
            for address, (who, reason) in sorted(self._silent.items())
        ]
        return Answers(
            asked=len(self._asked), answered=len(self._asked) - len(silent), silent=silent
        )

    @property
    def is_whole(self) -> bool:
        """True when all who were asked answered."""
        return not self._silent

    @property
    def is_silent(self) -> bool:
        """True when somebody was asked and nobody answered."""
        return bool(self._asked) and len(self._silent) == len(self._asked)


def reason_of(error: Exception) -> str:
    """Returns why nothing came, in a sentence; the beginning of a long one."""
    if isinstance(error, RefusedError):
        return (error.remark or "")[:TEXT_CHARS_MAX] or f"refused with code {error.code}"
    return (error.what if isinstance(error, ClientError) else str(error))[:TEXT_CHARS_MAX]
