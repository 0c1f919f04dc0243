"""Prover: what one account is at one set of name servers, and in which form it may sign there.

An account is proven by the brokers (`proofs.py`): they answer a request that is signed with its
secret, and refuse the same request signed with another one.

Requests are signed strongly where a broker knows that form: brokers of others may be among those
that are asked, and a stock signature is as good as the account for who chooses the names that it
is asked about. The stock form is tried only where nobody knows the strong one, as in a cluster of
Apache's: all registered brokers answer and refuse it, none says that it reads it, and it was never
let in there since the console began. `signature` "strong" tries it never: where all that is left
of a cluster is a broker of somebody else's, it answers as one of Apache's would.
"""

from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ledgermq.client.config import ClientConfig
from ledgermq.console.proofs import (
    Verdict,
    is_admin_no_more,
    is_refused,
    role_of,
    verdicts_of,
    wrong_one,
)
from ledgermq.console.remote import Remote
from ledgermq.console.shapes.session import Role
from ledgermq.console.tally import Tally
from ledgermq.http.replies import RequestError
from ledgermq.protocol.signature import Credentials

WRONG: Final = "access key or secret key is wrong"
Signature = Literal["any", "strong"]


class Standing(NamedTuple):
    """What an account is at one set of name servers."""

    # In the form that is let in there.
    credentials: Credentials
    # open: the brokers there ask for no account.
    role: Role


class Prover:
    """Asks brokers who somebody is."""

    def __init__(
        self, config: ClientConfig, judges: tuple[str, ...] = (), signature: Signature = "any"
    ) -> None:
        """
        Args:
            config: TLS.
            judges: addresses of the brokers whose word counts; empty: of all that are registered.
            signature: strong: an account is never shown in the stock form.
        """
        self._config, self._judges, self._signature = config, judges, signature
        # Sets of name servers where the strong form was let in.
        self._strong: set[str] = set()

    async def prove(self, name_servers: str, who: Credentials, tally: Tally) -> Standing | None:
        """Returns what an account is; None when nobody can tell.

        Args:
            name_servers: the set.
            who: the account, in the strong form.
            tally: told who is silent.

        Raises:
            RequestError: 401 the brokers refuse it.
        """
        for credentials in (who, replace(who, form="stock")):
            role = await self._role_of(name_servers, credentials, tally)
            match role:
                case Verdict.SILENT:
                    return None
                case Verdict.LET_IN:
                    return Standing(credentials, "open")
                case Verdict.REFUSED if self._may_try_stock(name_servers, credentials):
                    continue
                case Verdict():
                    raise RequestError(401, _told(role))
                case _:
                    if credentials.form == "strong":
                        self._strong.add(name_servers)
                    return Standing(credentials, role)
        raise RequestError(401, WRONG)

    async def _role_of(
        self, name_servers: str, credentials: Credentials, tally: Tally
    ) -> Role | Verdict:
        right = Remote(name_servers, replace(self._config, credentials=credentials))
        wrong = self._wrong_one(name_servers, credentials)
        try:
            return await role_of(right, wrong, credentials.access_key, tally, self._judges)
        finally:
            await right.close()
            await wrong.close()

    def _may_try_stock(self, name_servers: str, refused: Credentials) -> bool:
        is_allowed = refused.form == "strong" and self._signature != "strong"
        return is_allowed and name_servers not in self._strong

    async def asks_account(self, stranger: Remote) -> bool | None:
        """Tells whether brokers refuse what nobody has signed; None when none answers."""
        verdicts = await verdicts_of(stranger, self._judges)
        heard = [one for one in verdicts if one is not Verdict.SILENT]
        return is_refused(heard) if heard else None

    async def is_still(self, remote: Remote, standing: Standing) -> bool:
        """Tells whether an account is what it was; True when nobody can tell.

        False for an admin who is none any more, too: the console would go on to show what others
        do. Its session ends, and the next one has the role that the account has now.

        Args:
            remote: asks as the account.
            standing: what it was.
        """
        if is_refused(await verdicts_of(remote, self._judges)):
            return False
        if standing.role != "admin":
            return True
        credentials = standing.credentials
        wrong = self._wrong_one(remote.name_servers, credentials)
        try:
            return not await is_admin_no_more(remote, wrong, credentials.access_key, self._judges)
        finally:
            await wrong.close()

    def _wrong_one(self, name_servers: str, credentials: Credentials) -> Remote:
        return wrong_one(name_servers, self._config, credentials)


def _told(verdict: Verdict) -> str:
    """Returns what who signs in can look at; no address, for nobody knows who that is."""
    if verdict is Verdict.REFUSED_STRONG:
        return f"{WRONG}, or the clocks of the console and of a server differ"
    if verdict is Verdict.REFUSED_BY_SOME:
        return f"{WRONG}; the stock form is tried only when no broker is silent, and one is"
    return WRONG
