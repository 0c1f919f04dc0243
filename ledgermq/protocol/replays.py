"""Which requests with a strong signature were seen: each counts once.

Whoever signs numbers its requests, under a session that it draws. Of each session the greatest
number is known, and which of those shortly below it came: so a request is told from its copy
without keeping one mark for each, and connections of one session may overtake each other. A session
is forgotten when all that it signed is too old by its time. Pure.
"""

from typing import Final

# Numbers below the greatest one of a session of which it is known whether they came.
_NUMBERS_KNOWN: Final = 16_384
_MASK: Final = (1 << _NUMBERS_KNOWN) - 1
_SESSIONS_OF_ACCOUNT_MAX: Final = 1024
_SESSIONS_MAX: Final = 16_384


class _Session:
    __slots__ = ("greatest", "seen", "used_ms")

    def __init__(self) -> None:
        self.greatest = -1
        # Bit n: the number that is n below the greatest one came.
        self.seen = 0
        self.used_ms = 0.0


class Replays:
    """Sessions of all accounts."""

    def __init__(self, kept_ms: float) -> None:
        """Begins empty; `kept_ms` after its last request a session is forgotten."""
        self._kept_ms = kept_ms
        # Account -> session -> what is known, in the order of use.
        self._accounts: dict[str, dict[str, _Session]] = {}
        self._count = 0

    def find_refusal(self, account: str, session: str, number: int, clock_ms: float) -> str | None:
        """Notes a request whose signature is right.

        Args:
            account: who signed.
            session, number: of its nonce; the number is not negative.
            clock_ms: a clock that never goes back.

        Returns: None when it is the first of its kind; else why it does not count.
        """
        sessions = self._accounts.setdefault(account, {})
        known = sessions.pop(session, None)
        if known is None:
            known = self._new_session(sessions, clock_ms)
            if known is None:
                if not sessions:
                    del self._accounts[account]
                return (
                    f"there are {len(sessions)} sessions of this account and {self._count} of all,"
                    f" allowed are {_SESSIONS_OF_ACCOUNT_MAX} and {_SESSIONS_MAX}"
                )
        # To the end of the line.
        sessions[session] = known
        known.used_ms = clock_ms
        ahead = number - known.greatest
        if ahead > 0:
            known.seen = ((known.seen << ahead) & _MASK if ahead < _NUMBERS_KNOWN else 0) | 1
            known.greatest = number
            return None
        if -ahead >= _NUMBERS_KNOWN:
            return f"its number {number} is too far behind {known.greatest} to know whether it came"
        if known.seen >> -ahead & 1:
            return "it came before"
        known.seen |= 1 << -ahead
        return None

    def _new_session(self, sessions: dict[str, _Session], clock_ms: float) -> _Session | None:
        self._forget(sessions, clock_ms)
        if self._count >= _SESSIONS_MAX:
            for name in list(self._accounts):
                others = self._accounts[name]
                self._forget(others, clock_ms)
                if not others and others is not sessions:
                    del self._accounts[name]
        if len(sessions) >= _SESSIONS_OF_ACCOUNT_MAX or self._count >= _SESSIONS_MAX:
            return None
        self._count += 1
        return _Session()

    def _forget(self, sessions: dict[str, _Session], clock_ms: float) -> None:
        while sessions:
            name = next(iter(sessions))
            if clock_ms - sessions[name].used_ms <= self._kept_ms:
                return
            del sessions[name]
            self._count -= 1
