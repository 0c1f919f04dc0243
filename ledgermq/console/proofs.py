"""Proofs: what the brokers that name servers know say of an account; all of them are asked.

Who may register a broker may register one that lets everybody in. So one that lets somebody in
proves nothing while another one refuses, and one that refuses no wrong secret proves nothing at
all. What stays open is an hour in which no other broker answers, and that one which refuses
everybody shuts the console (docs/security.md). Where the console was told whose word counts, by
address, nobody else is asked.

A broker that refuses a strong signature may not know that form. Only where all of them answer so
nobody knows it.
"""

import asyncio
import enum
import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError
from ledgermq.console.accounts import read_accounts
from ledgermq.console.remote import Remote
from ledgermq.console.shapes.session import Role
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.route import MASTER_ID, ClusterInfo
from ledgermq.protocol.signature import Credentials
from ledgermq.protocol.signature_check import is_of_who_reads_strong_form

# Brokers that are asked at the same time.
_ASKED_AT_ONCE: Final = 32
# Asks where nobody has signed in.
_NOBODY: Final = "nobody"
# Refusals that say nothing about the account.
_BUSY: Final = frozenset({int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)})


class Verdict(enum.Enum):
    """What a broker says of somebody."""

    LET_IN = "let in"
    # Of all brokers: each one refuses, and none of them says that it knows the strong form.
    REFUSED = "refused"
    # By who reads the strong form: clocks differ, or it is none of the addresses signed for. Name
    # servers that ask for accounts read it, too.
    REFUSED_STRONG = "refused by who reads the strong form"
    # Of all brokers: some refuse, and the others are silent.
    REFUSED_BY_SOME = "refused by some, others are silent"
    # It does not answer, or has no time.
    SILENT = "silent"
    # Let in by one, refused by another.
    DISPUTED = "disputed"


_REFUSALS: Final = frozenset({Verdict.REFUSED, Verdict.REFUSED_STRONG})


def is_refused(verdicts: Collection[Verdict]) -> bool:
    """Tells whether some broker refuses."""
    return not _REFUSALS.isdisjoint(verdicts)


async def verdicts_of(remote: Remote, judges: Sequence[str] = ()) -> Sequence[Verdict]:
    """Returns what each broker says of who asks, or what the name servers say, which may show their
    brokers to accounts only; nothing when none of them answers.

    Args:
        remote: asks.
        judges: addresses of brokers; empty: all that the name servers know.
    """
    tally = Tally()
    found = list(judges) or await _brokers(remote, tally)
    return [found] if isinstance(found, Verdict) else await _each(remote, found, tally)


async def role_of(
    remote: Remote,
    wrong: Remote,
    access_key: str,
    tally: Tally,
    judges: Sequence[str] = (),
) -> Role | Verdict:
    """Returns the role of an account that is proven.

    Args:
        remote: asks with the account.
        wrong: asks the same name servers and brokers with a wrong secret.
        access_key: of the account.
        tally: told who is silent.
        judges: as in `verdicts_of`.

    Returns:
        its role, of which no broker says less; one of the refusals when brokers refuse it,
        DISPUTED when others let it in; LET_IN when no broker tells it from a wrong one; SILENT when
        none answers.
    """
    addresses = list(judges) or await _brokers(remote, tally)
    if isinstance(addresses, Verdict):
        return addresses
    verdicts = await _each(remote, addresses, tally)
    if is_refused(verdicts):
        return _refusal_of(verdicts)
    answering = [
        address
        for address, verdict in zip(addresses, verdicts, strict=True)
        if verdict is Verdict.LET_IN
    ]
    controls = await _each(wrong, answering, tally)
    judges = [
        address
        for address, verdict in zip(answering, controls, strict=True)
        if is_refused([verdict])
    ]
    if not judges:
        return Verdict.LET_IN if Verdict.LET_IN in controls else Verdict.SILENT
    admins = await asyncio.gather(*(_is_admin(remote, one, access_key) for one in judges))
    return "admin" if all(admins) else "user"


async def is_admin_no_more(
    remote: Remote, wrong: Remote, access_key: str, judges: Sequence[str] = ()
) -> bool:
    """Tells whether a broker that `role_of` would hear says that an account is no admin.

    One that is silent says nothing. A wrong secret is shown to those alone that deny it: a broker
    may note each one.
    """
    tally = Tally()
    addresses = list(judges) or await _brokers(remote, tally)
    if isinstance(addresses, Verdict):
        return False
    admins = await asyncio.gather(*(_is_admin(remote, one, access_key) for one in addresses))
    denying = [one for one, is_admin in zip(addresses, admins, strict=True) if is_admin is False]
    return is_refused(await _each(wrong, denying, tally))


async def who_asks_accounts(remote: Remote, addresses: Sequence[str]) -> set[str]:
    """Returns the brokers that refuse a wrong secret; one that is silent is none of them."""
    who = remote.config.credentials or Credentials(access_key=_NOBODY, secret_key=_NOBODY)
    wrong = wrong_one(remote.name_servers, remote.config, who)
    try:
        verdicts = await _each(wrong, addresses, Tally())
    finally:
        await wrong.close()
    told = zip(addresses, verdicts, strict=True)
    return {address for address, verdict in told if is_refused([verdict])}


def wrong_one(name_servers: str, config: ClientConfig, who: Credentials) -> Remote:
    """Returns what asks the same name servers and brokers with a wrong secret."""
    wrong = replace(who, secret_key=secrets.token_urlsafe(16))
    return Remote(name_servers, replace(config, credentials=wrong))


async def _brokers(remote: Remote, tally: Tally) -> list[str] | Verdict:
    """Returns the address of one broker of each name; a verdict when they are not told."""
    try:
        answer = await remote.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = ClusterInfo.decode(answer.body)
    except FAILURES as error:
        tally.failed("name server", remote.name_servers, error)
        # Apache's refuse nobody.
        return Verdict.REFUSED_STRONG if _is_refusal(error) else Verdict.SILENT
    return sorted(
        {
            broker.broker_addrs.get(MASTER_ID) or min(broker.broker_addrs.values())
            for broker in info.broker_addr_table.values()
            if broker.broker_addrs
        }
    )


async def _each(remote: Remote, addresses: Sequence[str], tally: Tally) -> list[Verdict]:
    room = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def one(address: str) -> Verdict:
        async with room:
            try:
                await remote.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            except FAILURES as error:
                tally.failed("broker", address, error)
                return _verdict(error, remote)
            return Verdict.LET_IN

    return await asyncio.gather(*(one(address) for address in addresses))


def _refusal_of(verdicts: Collection[Verdict]) -> Verdict:
    """Returns what all brokers say together when some refuse."""
    if Verdict.LET_IN in verdicts:
        return Verdict.DISPUTED
    if Verdict.REFUSED_STRONG in verdicts:
        return Verdict.REFUSED_STRONG
    return Verdict.REFUSED_BY_SOME if Verdict.SILENT in verdicts else Verdict.REFUSED


def _verdict(error: Exception, remote: Remote) -> Verdict:
    if not isinstance(error, RefusedError) or not _is_refusal(error):
        return Verdict.SILENT
    who = remote.config.credentials
    reads_it = (
        who is not None
        and who.form == "strong"
        and is_of_who_reads_strong_form(error.remark, who.access_key)
    )
    return Verdict.REFUSED_STRONG if reads_it else Verdict.REFUSED


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, RefusedError) and error.code not in _BUSY


async def _is_admin(remote: Remote, address: str, access_key: str) -> bool | None:
    """True when the broker says so; it shows the rules to none but admins. None: it is silent."""
    try:
        answer = await remote.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        accounts, _ = read_accounts(answer.body)
    except FAILURES as error:
        return False if _is_refusal(error) else None
    rules = accounts.get(access_key)
    return rules is not None and rules.is_admin
