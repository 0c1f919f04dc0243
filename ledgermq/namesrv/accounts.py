"""Accounts of a name server: who may register which brokers, who may administrate; pure.

The file is of the form of a broker's plain_acl.yml, with members of its own:

    globalWhiteRemoteAddresses:          requests from here may do everything, unsigned ones, too
    - 10.1.0.5
    accounts:
    - accessKey: shop-brokers
      secretKey: ...
      formerSecretKey: ...               counts as well, while brokers change over to the new one
      brokerNames: [shop-*, stock]       may register these; a star stands at the end only
      whiteRemoteAddress: 10.1.2.*       unsigned requests from here are this account's
      certificateNames: [n0.shop]        so are those of a connection with this client certificate
    - accessKey: operator
      secretKey: ...
      admin: true                        may do everything

An account that has neither `admin` nor `brokerNames` may read, where that needs an account. The
permissions that a broker's file has beside these mean nothing here, so one file may serve both.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ledgermq.access.addresses import AddressPattern
from ledgermq.access.entries import ACCOUNTS_MAX, EntryReader
from ledgermq.namesrv.errors import AccountsError, NotAllowedError
from ledgermq.protocol.signature import ACCESS_KEY

_NAMES_MAX: Final = 1000
_SHOWN_CHARS: Final = 128
_ENTRIES: Final = EntryReader(AccountsError)

_MEMBERS: Final = frozenset(
    ("accessKey", "secretKey", "formerSecretKey", "whiteRemoteAddress", "certificateNames",
     "admin", "brokerNames")
)  # fmt: skip
_MEMBERS_OF_BROKERS: Final = frozenset(
    (
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
        "maxMessagesPerSecond",
        "maxBytesPerSecond",
        "maxConnections",
    )
)


@dataclass(slots=True, frozen=True, kw_only=True)
class NameAccount:
    """One account."""

    # Empty for whoever comes from a globally white address.
    access_key: str
    # Each of them signs; never shown.
    secret_keys: tuple[str, ...] = field(default=(), repr=False)
    white_remote_address: AddressPattern
    certificate_names: frozenset[str] = frozenset()
    is_admin: bool = False
    # Names of brokers, or beginnings of names with a star behind.
    broker_names: tuple[str, ...] = ()

    @property
    def is_registrant(self) -> bool:
        """True when there are brokers that it may register."""
        return self.is_admin or bool(self.broker_names)

    def may_register(self, broker_name: str) -> bool:
        """Tells whether it may register brokers of a name."""
        return self.is_admin or any(
            broker_name.startswith(text[:-1]) if text.endswith("*") else broker_name == text
            for text in self.broker_names
        )


def _never(access_key: str, secret_key: str) -> str | None:
    """Of a request that is not there yet."""
    return "not signed"


# Whoever comes from a globally white address.
_WHITE: Final = NameAccount(access_key="", white_remote_address=AddressPattern(""), is_admin=True)


@dataclass(slots=True, frozen=True, kw_only=True)
class NameAccounts:
    """Everything that the file says."""

    white_addresses: tuple[AddressPattern, ...] = ()
    accounts: Mapping[str, NameAccount] = field(default_factory=dict)
    # Of `accounts`, so that strangers cost no look at all of them: by each name of a certificate,
    # the first in the file, and those with a white address.
    certified: Mapping[str, NameAccount] = field(default_factory=dict)
    addressed: tuple[NameAccount, ...] = ()

    def find(
        self,
        host: str,
        certificate_names: Iterable[str],
        ext_fields: Mapping[str, str],
        find_wrong: Callable[[str, str], str | None],
    ) -> NameAccount | None:
        """Returns whose request this is.

        Args:
            host: the address that it came from.
            certificate_names: of the verified certificate of its connection.
            ext_fields: of the request, as received.
            find_wrong: why the request is not signed with an access key and a secret key; None
                when it is.

        Returns:
            The account; None when nothing names one.

        Raises:
            NotAllowedError: it names an account that is none of this file, or does not prove it.
        """
        is_white = any(pattern.matches(host) for pattern in self.white_addresses)
        access_key = ext_fields.get(ACCESS_KEY)
        names = frozenset(certificate_names)
        if access_key:
            account = self.accounts.get(access_key)
            reasons: list[str] = []
            if account is not None:
                if account.white_remote_address.matches(host) or account.certificate_names & names:
                    return account
                for key in account.secret_keys:
                    reason = find_wrong(access_key, key)
                    if reason is None:
                        return account
                    reasons.append(reason.partition(f"accessKey={access_key}")[2])
            if is_white:
                return _WHITE
            shown = ascii(access_key[:_SHOWN_CHARS])
            if account is None:
                raise NotAllowedError(f"this name server has no account {shown}")
            # With the former key it is just wrong.
            why = max(reasons, key=len, default="")
            raise NotAllowedError(f"the signature of account {shown} is wrong{why}")
        for name in sorted(names & self.certified.keys()):
            return self.certified[name]
        if is_white:
            return _WHITE
        for account in self.addressed:
            if account.white_remote_address.matches(host):
                return account
        return None

    def may_be_one(
        self, host: str, certificate_names: Iterable[str], ext_fields: Mapping[str, str]
    ) -> bool:
        """Tells whether `find` may return an account, as far as that can be seen without a body."""
        if ext_fields.get(ACCESS_KEY) in self.accounts:
            return True
        try:
            return self.find(host, certificate_names, {}, _never) is not None
        except NotAllowedError:
            return False


def parse_accounts(document: object) -> NameAccounts:
    """Reads the content of a file; what is not understood is an error, never left out.

    Raises:
        AccountsError: something in it is not what it should be.
    """
    members = _ENTRIES.document(document)
    accounts: dict[str, NameAccount] = {}
    for entry in _ENTRIES.items("accounts", members.get("accounts"), ACCOUNTS_MAX):
        account = _account(entry)
        if account.access_key in accounts:
            raise AccountsError(f"two accounts have the accessKey {account.access_key!r}")
        accounts[account.access_key] = account
    certified: dict[str, NameAccount] = {}
    for account in accounts.values():
        for certificate_name in account.certificate_names:
            certified.setdefault(certificate_name, account)
    return NameAccounts(
        white_addresses=_ENTRIES.white_addresses(members.get("globalWhiteRemoteAddresses")),
        accounts=accounts,
        certified=certified,
        addressed=tuple(one for one in accounts.values() if one.white_remote_address.text),
    )


def _account(entry: object) -> NameAccount:
    members, access_key, where = _ENTRIES.account(entry, _MEMBERS | _MEMBERS_OF_BROKERS)
    secrets = [_ENTRIES.find_key(members, name, where) for name in ("secretKey", "formerSecretKey")]
    address = _ENTRIES.white_address(members, where)
    names = _names(where, "certificateNames", members.get("certificateNames"))
    if secrets[0] is None and not names and not address.text:
        raise AccountsError(
            f"{where}: secretKey is missing; without it, certificateNames or whiteRemoteAddress"
            " must say whose the account is"
        )
    return NameAccount(
        access_key=access_key,
        secret_keys=tuple(secret for secret in secrets if secret is not None),
        white_remote_address=address,
        certificate_names=frozenset(names),
        is_admin=_ENTRIES.is_admin(members, where),
        broker_names=_broker_names(where, members.get("brokerNames")),
    )


def _broker_names(where: str, value: object) -> tuple[str, ...]:
    names = _names(where, "brokerNames", value)
    for name in names:
        if "*" in name[:-1]:
            raise AccountsError(f"{where}: brokerNames has {name[:64]!r}; a star stands at the end")
    return names


def _names(where: str, member: str, value: object) -> tuple[str, ...]:
    found = _ENTRIES.items(f"{where}: {member}", value, _NAMES_MAX)
    names = tuple(str(name) for name in found)
    if "" in names:
        raise AccountsError(f"{where}: {member} has an empty name")
    return names
