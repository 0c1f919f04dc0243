"""Sessions: who is signed in, for how long, and how often somebody may try.

An account is proven by the brokers (`proofs.py`): they answer a request that is signed with its
secret, and refuse the same request signed with another one. The secret is kept in memory, for the
requests of the session, and is nowhere else.

Requests are signed strongly where a broker knows that form: brokers of others may be among those
that are asked, and a stock signature is as good as the account for who chooses the names that it
is asked about. The stock form is tried only where nobody knows the strong one, as in a cluster of
Apache's: all registered brokers answer and refuse it, none says that it reads it, and it was never
let in there since the console began. `signature` "strong" tries it never: where all that is left
of a cluster is a broker of somebody else's, it answers as one of Apache's would.
"""

import asyncio
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ledgermq import __version__
from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import UnreachableError
from ledgermq.console.identity import Identity
from ledgermq.console.proofs import Verdict, is_admin_no_more, is_refused, role_of, verdicts_of
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
# An account that was changed ends its sessions so soon.
_PROVEN_S: Final = 60.0
_REFUSALS: Final = (401, 403)
_WRONG: Final = "access key or secret key is wrong"
Signature = Literal["any", "strong"]


@dataclass(slots=True, kw_only=True)
class Session:
    """One browser or program."""

    id: str
    csrf: str
    # None: no account is asked for.
    account: str | None
    role: Role
    may_change: bool
    # Of what is the console's own: what others did through it, logs of programs.
    sees_all: bool
    identity: Identity
    credentials: Credentials | None
    # Knows the brokers that proved the account.
    remote: Remote | None
    # By the loop's clock.
    begun_s: float
    used_s: float
    proven_s: float


class _Proof(NamedTuple):
    """An account that brokers know."""

    identity: Identity
    credentials: Credentials
    role: Role
    # Knows these brokers; one of the identity's.
    remote: Remote


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
        self._judges, self._signature = judges, signature
        # Sets of name servers where the strong form was let in.
        self._strong: set[str] = set()
        self._sessions: dict[str, Session] = {}
        # Address, or network of IPv6 -> when it tried, by the loop's clock.
        self._tries: dict[str, list[float]] = {}
        # From where somebody signed in, the last one at the end.
        self._known: dict[str, None] = {}
        self._open: Session | None = None
        # Told the number of each session that ends.
        self._on_end: list[Callable[[str], None]] = []
        self._asks_account: tuple[float, bool] | None = None

    def on_end(self, told: Callable[[str], None]) -> None:
        """Has somebody told the number of each session that ends."""
        self._on_end.append(told)

    async def find(self, session_id: str | None) -> Session | None:
        """Returns who asks; None when somebody has to sign in first."""
        now_s = _now_s()
        session = self._sessions.get(session_id or "")
        if session is not None:
            if now_s - session.used_s > _IDLE_S or now_s - session.begun_s > _WHOLE_S:
                await self.end(session)
                return None
            session.used_s = now_s
            if now_s - session.proven_s > _PROVEN_S and not await self._still_proven(session):
                await self.end(session)
                return None
            return session
        return None if await self.needs_account() else self.open_session()

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
                sees_all=True,
                identity=Identity(
                    self._name_servers, replace(self._config, credentials=None), self._now_ms
                ),
                credentials=None,
                remote=None,
                begun_s=now_s,
                used_s=now_s,
                proven_s=now_s,
            )
        return self._open

    async def needs_account(self) -> bool:
        """Tells whether somebody has to sign in: the brokers refuse what nobody has signed."""
        if self._must_sign_in:
            return True
        now_s = _now_s()
        if self._asks_account is not None and now_s - self._asks_account[0] < _MINUTE_S:
            return self._asks_account[1]
        for remote in self.open_session().identity.remotes:
            verdicts = await verdicts_of(remote, self._judges)
            if any(one is not Verdict.SILENT for one in verdicts):
                asks = is_refused(verdicts)
                self._asks_account = (now_s, asks)
                return asks
        # Nobody is there to tell. The brokers show nothing then, but the console has logs and audit
        # of its own: who asked for accounts before goes on to.
        return self._asks_account is not None and self._asks_account[1]

    async def sign_in(self, wanted: SignIn, peer: str) -> Session:
        """Begins a session.

        Raises:
            RequestError: 401 the account is not known so, 429 too many tries, 502 nobody can tell.
        """
        network = network_of(peer)
        begun_s = self._count_try(network)
        try:
            proof = await self._proven(wanted)
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
            role="reader" if is_reader else proof.role,
            may_change=not is_reader,
            sees_all=proof.role == "admin",
            identity=proof.identity,
            credentials=proof.credentials,
            remote=proof.remote,
            begun_s=now_s,
            used_s=now_s,
            proven_s=now_s,
        )
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
        """Ends a session; the open one goes on."""
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

    async def _proven(self, wanted: SignIn) -> _Proof:
        """Returns an account that the brokers know, ready to ask.

        Raises:
            RequestError: as `sign_in`.
        """
        strong = Credentials(
            access_key=wanted.access_key, secret_key=wanted.secret_key, form="strong"
        )
        proof = await self._proven_with(strong, wanted.cluster)
        if proof is None:
            proof = await self._proven_with(replace(strong, form="stock"), wanted.cluster)
        if proof is None:
            raise RequestError(401, _WRONG)
        return proof

    async def _proven_with(self, credentials: Credentials, cluster: str) -> _Proof | None:
        """Returns an account; None when the brokers refuse it so, and may know another form."""
        config = replace(self._config, credentials=credentials)
        identity = Identity(self._name_servers, config, self._now_ms)
        try:
            proof = await self._prove(identity, credentials, cluster)
        except BaseException:
            await identity.close()
            raise
        if proof is None:
            await identity.close()
        return proof

    async def _prove(
        self, identity: Identity, credentials: Credentials, cluster: str
    ) -> _Proof | None:
        remotes = identity.remotes
        if cluster:
            sight = await identity.find(cluster)
            if sight is None:
                raise RequestError(401, _WRONG)
            remotes = [sight.view.remote]
        tally = Tally()
        for remote in remotes:
            wrong = self._wrong_one(remote, credentials)
            try:
                role = await role_of(remote, wrong, credentials.access_key, tally, self._judges)
            finally:
                await wrong.close()
            match role:
                case Verdict.SILENT:
                    continue
                case Verdict.LET_IN:
                    message = "the brokers of this cluster ask for no account: there are none"
                    raise RequestError(401, message)
                case Verdict.REFUSED if self._may_know_stock_alone(remote, credentials):
                    return None
                case Verdict():
                    raise RequestError(401, _told(role))
                case _:
                    if credentials.form == "strong":
                        self._strong.add(remote.name_servers)
                    return _Proof(identity, credentials, role, remote)
        silent = tally.answers().silent
        failure = silent[0].reason if silent else "no broker is registered"
        raise RequestError(502, f"no broker can tell whether the account is right: {failure}")

    def _may_know_stock_alone(self, remote: Remote, credentials: Credentials) -> bool:
        is_first_try = credentials.form == "strong" and self._signature != "strong"
        return is_first_try and remote.name_servers not in self._strong

    def _wrong_one(self, remote: Remote, credentials: Credentials) -> Remote:
        """Returns what asks the same name servers and brokers with a wrong secret."""
        wrong = replace(credentials, secret_key=secrets.token_urlsafe(16))
        return Remote(remote.name_servers, replace(self._config, credentials=wrong))

    async def _still_proven(self, session: Session) -> bool:
        session.proven_s = _now_s()
        # Those that proved it are heard first.
        remotes = sorted(session.identity.remotes, key=lambda one: one is not session.remote)
        for remote in remotes:
            verdicts = await verdicts_of(remote, self._judges)
            if any(one is not Verdict.SILENT for one in verdicts):
                return not is_refused(verdicts) and await self._is_as_it_was(session)
        return True

    async def _is_as_it_was(self, session: Session) -> bool:
        """False for an admin who is none any more: the console would go on to show what others do.

        Its session ends, and the next one has the role that the account has now.
        """
        remote, credentials = session.remote, session.credentials
        if not session.sees_all or remote is None or credentials is None:
            return True
        wrong = self._wrong_one(remote, credentials)
        try:
            return not await is_admin_no_more(remote, wrong, credentials.access_key, self._judges)
        finally:
            await wrong.close()


def _told(verdict: Verdict) -> str:
    """Returns what who signs in can look at; no address, for nobody knows who that is."""
    if verdict is Verdict.REFUSED_STRONG:
        return f"{_WRONG}, or the clocks of the console and of a server differ"
    if verdict is Verdict.REFUSED_BY_SOME:
        return f"{_WRONG}; the stock form is tried only when no broker is silent, and one is"
    return _WRONG


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def is_token(session: Session, told: str) -> bool:
    """Tells whether a request carries the session's token."""
    return hmac.compare_digest(session.csrf.encode(), told.encode("utf-8", "replace"))
