"""Sessions: who is signed in, for how long, and how often somebody may try.

An account is proven by the brokers (`prover.py`), at each set of name servers by its own: an admin
here may be nobody there, and an access key two people's. It is proven at one set to sign in, and at
another one when a cluster of that is asked for first. The secret is kept in memory, for the
requests of the session, and is nowhere else.
"""

import asyncio
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ledgermq import __version__
from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import UnreachableError
from ledgermq.console.identity import Identity, Sight
from ledgermq.console.prover import WRONG, Prover, Signature, Standing
from ledgermq.console.remote import Remote
from ledgermq.console.shapes.session import Role, SignIn
from ledgermq.console.shapes.session import Session as SessionShape
from ledgermq.console.tally import Tally
from ledgermq.http.replies import RequestError
from ledgermq.protocol.networks import network_of
from ledgermq.protocol.signature import Credentials

COOKIE: Final = "ledgermq_session"
_IDLE_S: Final = 1800.0
_WHOLE_S: Final = 12 * 3600.0
_SESSIONS_MAX: Final = 200
# Of one account: beyond that its eldest ends, and beyond all of them one of who has the most.
_OF_ACCOUNT_MAX: Final = 40
# Tries of one address, and of all, in a minute, but for those that no broker could judge. Where
# somebody has signed in from, the tries of others are in nobody's way.
_TRIES_MAX: Final = 5
_ALL_TRIES_MAX: Final = 60
_KNOWN_MAX: Final = 1000
_MINUTE_S: Final = 60.0
# What silent name servers said before counts for so long before they are asked again.
_SILENT_S: Final = 2.0
# An account that was changed ends its sessions so soon.
_PROVEN_S: Final = 60.0
# Sessions whose accounts are proven anew at the same time, when nobody waits for it.
_LOOKED_AT_ONCE: Final = 8
_REFUSALS: Final = (401, 403)
_NOT_HERE: Final = "the brokers of this cluster do not let this account in"
_NO_ACCOUNTS: Final = "the brokers of this cluster ask for no account: there are none"


@dataclass(slots=True, kw_only=True)
class Session:
    """One browser or program."""

    id: str
    csrf: str
    # None: no account is asked for.
    account: str | None
    role: Role
    may_change: bool
    identity: Identity
    # In the strong form.
    credentials: Credentials | None
    # By the loop's clock.
    begun_s: float
    used_s: float
    proven_s: float
    # What the account is, by number of the set of name servers.
    standings: dict[int, Standing] = field(default_factory=dict)
    # When a set refused it, by the loop's clock.
    refused_s: dict[int, float] = field(default_factory=dict)
    proving: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_admin_at(self, number: int) -> bool:
        """Tells whether what all do at a set of name servers is shown: to its admins, and to
        everybody where no account is asked for.
        """
        standing = self.standings.get(number)
        return self.account is None or (standing is not None and standing.role == "admin")

    @property
    def is_admin(self) -> bool:
        """True for an admin of some set."""
        return any(map(self.is_admin_at, self.standings))


class Sessions:
    """All sessions of a console."""

    def __init__(
        self,
        name_servers: list[str],
        config: ClientConfig,
        now_ms: Callable[[], int],
        *,
        must_sign_in: bool,
        read_only: bool,
        readers: frozenset[str],
        judges: tuple[str, ...] = (),
        signature: Signature = "any",
    ) -> None:
        """
        Args:
            name_servers: sets of name servers.
            config: TLS; credentials of the console's own looks.
            now_ms: the wall clock.
            must_sign_in: True: without an account nothing is shown, whatever the brokers ask for.
            read_only: nobody changes anything.
            readers: accounts that change nothing.
            judges: addresses of the brokers whose word counts; empty: of all that are registered.
            signature: strong: an account is never shown in the stock form.
        """
        self._name_servers, self._config, self._now_ms = name_servers, config, now_ms
        self._must_sign_in = must_sign_in
        self._read_only, self._readers = read_only, readers
        self._prover = Prover(config, judges, signature)
        # Of nobody: they find out whether an account is asked for.
        self._strangers = [Remote(text, replace(config, credentials=None)) for text in name_servers]
        self._sessions: dict[str, Session] = {}
        # Address, or network of IPv6 -> when it tried, by the loop's clock.
        self._tries: dict[str, list[float]] = {}
        # From where somebody signed in, the last one at the end.
        self._known: dict[str, None] = {}
        self._open: Session | None = None
        # Told the number of each session that ends.
        self._on_end: list[Callable[[str], None]] = []
        # By set of name servers: whether it asks for accounts, until when that counts.
        self._asks: dict[int, tuple[bool, float]] = {}

    def on_end(self, told: Callable[[str], None]) -> None:
        """Has somebody told the number of each session that ends."""
        self._on_end.append(told)

    async def find(self, session_id: str | None) -> Session | None:
        """Returns who asks; None when somebody has to sign in first."""
        session = self._sessions.get(session_id or "")
        if session is not None:
            if not await self.goes_on(session):
                return None
            session.used_s = _now_s()
            return session
        return None if await self.needs_account() else self.open_session()

    async def goes_on(self, session: Session) -> bool:
        """Tells whether a session is there, and ends one whose time is over, or whose account is
        not what it was. This is no use of it.
        """
        if session.account is None:
            return not await self.needs_account() and session is self._open
        if session.id not in self._sessions:
            return False
        now_s = _now_s()
        is_over = now_s - session.used_s > _IDLE_S or now_s - session.begun_s > _WHOLE_S
        if is_over or (
            now_s - session.proven_s > _PROVEN_S and not await self._still_proven(session)
        ):
            await self.end(session)
        return session.id in self._sessions

    async def end_old(self) -> None:
        """Ends what nobody may come for again: it holds a secret key, asks brokers with it, and
        carries out what was begun.
        """
        turns = asyncio.Semaphore(_LOOKED_AT_ONCE)

        async def look(session: Session) -> None:
            async with turns:
                await self.goes_on(session)

        await asyncio.gather(*map(look, list(self._sessions.values())))

    def open_session(self) -> Session:
        """Returns the one session of all, where no account is asked for."""
        if self._open is None:
            now_s = _now_s()
            self._open = Session(
                id="open",
                csrf=secrets.token_urlsafe(32),
                account=None,
                role="reader" if self._read_only else "open",
                may_change=not self._read_only,
                identity=Identity(
                    self._name_servers, replace(self._config, credentials=None), self._now_ms
                ),
                credentials=None,
                begun_s=now_s,
                used_s=now_s,
                proven_s=now_s,
            )
        return self._open

    async def needs_account(self) -> bool:
        """Tells whether somebody has to sign in: brokers of some set refuse what nobody signed."""
        if self._must_sign_in:
            return True
        asks = await asyncio.gather(*map(self._asks_account, range(len(self._strangers))))
        if any(asks) and self._open is not None:
            # Who comes when it is open again begins anew.
            former, self._open = self._open, None
            for told in self._on_end:
                told(former.id)
            await former.identity.close()
        return any(asks)

    async def _asks_account(self, number: int) -> bool:
        # Nobody may be there to tell. The brokers show nothing then, but the console has logs and
        # audit of its own: who asked for accounts before goes on to.
        before, until_s = self._asks.get(number, (False, 0.0))
        if _now_s() < until_s:
            return before
        asks = await self._prover.asks_account(self._strangers[number])
        counts_s = _SILENT_S if asks is None else _MINUTE_S
        told = before if asks is None else asks
        self._asks[number] = told, _now_s() + counts_s
        return told

    async def sign_in(self, wanted: SignIn, peer: str) -> Session:
        """Begins a session.

        Raises:
            RequestError: 401 the account is not known so, 429 too many tries, 502 nobody can tell.
        """
        network = network_of(peer)
        begun_s = self._count_try(network)
        credentials = Credentials(
            access_key=wanted.access_key, secret_key=wanted.secret_key, form="strong"
        )
        config = replace(self._config, credentials=credentials)
        identity = Identity(self._name_servers, config, self._now_ms)
        try:
            number, standing = await self._prove(identity, credentials, wanted.cluster)
        except (RequestError, UnreachableError) as error:
            # One that was broken off stays counted: a guess costs no less when nobody waits for
            # its answer.
            if not isinstance(error, RequestError) or error.status not in _REFUSALS:
                self._was_no_guess(network, begun_s)
            raise
        await self._make_room(wanted.access_key)
        self._known.pop(network, None)
        self._known[network] = None
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        now_s = _now_s()
        is_reader = self._read_only or wanted.access_key in self._readers
        session = Session(
            id=secrets.token_urlsafe(32),
            csrf=secrets.token_urlsafe(32),
            account=wanted.access_key,
            role="reader" if is_reader else standing.role,
            may_change=not is_reader,
            identity=identity,
            credentials=credentials,
            begun_s=now_s,
            used_s=now_s,
            proven_s=now_s,
            standings={number: standing},
        )
        await identity.sign_as(number, standing.credentials)
        self._sessions[session.id] = session
        return session

    async def _make_room(self, account: str) -> None:
        """Ends sessions so that one more of an account has room: none of others that have fewer."""
        while True:
            counts = Counter(one.account for one in self._sessions.values())
            if counts[account] >= _OF_ACCOUNT_MAX:
                whose: str | None = account
            elif len(self._sessions) >= _SESSIONS_MAX:
                whose = max(counts, key=lambda one: (counts[one], one == account))
            else:
                return
            theirs = [one for one in self._sessions.values() if one.account == whose]
            await self.end(min(theirs, key=lambda one: one.used_s))

    async def end(self, session: Session) -> None:
        """Ends a session; the open one ends when an account is asked for."""
        if self._sessions.pop(session.id, None) is not None:
            for told in self._on_end:
                told(session.id)
            await session.identity.close()

    async def close(self) -> None:
        """Ends all."""
        for session in list(self._sessions.values()):
            await self.end(session)
        if self._open is not None:
            await self._open.identity.close()
        await asyncio.gather(*(remote.close() for remote in self._strangers))

    def shape(self, session: Session | None, *, needed: bool) -> SessionShape:
        """Returns what a browser is told of its session."""
        now_s = _now_s()
        is_account = session is not None and session.account is not None
        left_s = None if session is None else _WHOLE_S - (now_s - session.begun_s)
        return SessionShape(
            signed_in=is_account,
            sign_in_needed=needed,
            account=None if session is None else session.account,
            role="none" if session is None else session.role,
            may_change=session is not None and session.may_change,
            csrf_token="" if session is None else session.csrf,
            idle_s=int(_IDLE_S) if is_account else None,
            ends_ms=(
                self._now_ms() + int(left_s * 1000) if is_account and left_s is not None else None
            ),
            version=__version__,
        )

    def _count_try(self, peer: str) -> float:
        """Counts a try, and tells when it was begun."""
        now_s = _now_s()
        self._tries = {
            address: recent
            for address, times in self._tries.items()
            if (recent := [one for one in times if now_s - one < _MINUTE_S])
        }
        mine = self._tries.setdefault(peer, [])
        everybody = [one for times in self._tries.values() for one in times]
        all_max = len(everybody) + 1 if peer in self._known else _ALL_TRIES_MAX
        for tries, limit in ((mine, _TRIES_MAX), (everybody, all_max)):
            if len(tries) >= limit:
                wait_s = max(int(_MINUTE_S - (now_s - min(tries))) + 1, 1)
                raise RequestError(
                    429,
                    f"too many tries to sign in; come back in {wait_s} s",
                    field="access_key",
                    limit=limit,
                    headers=(("Retry-After", str(wait_s)),),
                )
        mine.append(now_s)
        return now_s

    def _was_no_guess(self, peer: str, begun_s: float) -> None:
        """Takes a try back: no broker was there that could tell. One that let somebody in counts,
        for each session may end another one.
        """
        mine = self._tries.get(peer, [])
        if begun_s in mine:
            mine.remove(begun_s)

    async def _prove(
        self, identity: Identity, credentials: Credentials, cluster: str
    ) -> tuple[int, Standing]:
        """Returns a set of name servers that knows an account, and what it is there.

        Raises:
            RequestError: as `sign_in`.
        """
        asked = identity.set_of(cluster) if cluster else None
        if cluster and asked is None:
            raise RequestError(401, WRONG)
        tally, is_open = Tally(), False
        for number in range(len(self._name_servers)) if asked is None else (asked,):
            standing = await self._prover.prove(self._name_servers[number], credentials, tally)
            if standing is not None and standing.role != "open":
                return number, standing
            is_open = is_open or standing is not None
        if is_open:
            raise RequestError(401, _NO_ACCOUNTS)
        raise RequestError(502, _untold(tally))

    async def enter(self, session: Session, cluster_id: str) -> Sight | None:
        """Returns a cluster, as `Identity.find`, to who is let in there.

        Raises:
            RequestError: 403 its brokers refuse the account, 502 none of them can tell.
            UnreachableError: as `Identity.find`.
        """
        number = session.identity.set_of(cluster_id)
        if number is None:
            return None
        await self._stand(session, number)
        return await session.identity.find(cluster_id)

    async def is_admin_everywhere(self, session: Session) -> bool:
        """Tells whether what is of no set of name servers is shown: logs, and who signed in."""
        for number in range(len(self._name_servers)):
            try:
                await self._stand(session, number)
            except RequestError:
                return False
            if not session.is_admin_at(number):
                return False
        return True

    async def _stand(self, session: Session, number: int) -> None:
        """Has an account proven at a set of name servers, if it is not yet."""
        credentials = session.credentials
        if credentials is None or number in session.standings:
            return
        async with session.proving:
            if number in session.standings:
                return
            if _now_s() - session.refused_s.get(number, -_PROVEN_S) < _PROVEN_S:
                raise RequestError(403, _NOT_HERE)
            tally = Tally()
            try:
                standing = await self._prover.prove(self._name_servers[number], credentials, tally)
            except RequestError as error:
                session.refused_s[number] = _now_s()
                raise RequestError(403, _NOT_HERE) from error
            if standing is None:
                raise RequestError(502, _untold(tally))
            await session.identity.sign_as(number, standing.credentials)
            session.standings[number] = standing

    async def _still_proven(self, session: Session) -> bool:
        session.proven_s = _now_s()
        remotes = session.identity.remotes
        still = await asyncio.gather(
            *(
                self._prover.is_still(remotes[number], standing)
                for number, standing in session.standings.items()
            )
        )
        return all(still)


def _untold(tally: Tally) -> str:
    silent = tally.answers().silent
    failure = silent[0].reason if silent else "no broker is registered"
    return f"no broker can tell whether the account is right: {failure}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def is_token(session: Session, told: str) -> bool:
    """Tells whether a request carries the session's token."""
    return hmac.compare_digest(session.csrf.encode(), told.encode("utf-8", "replace"))
