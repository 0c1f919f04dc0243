"""AccessRules: the content of plain_acl.yml as a value, checked; and changes that give a new one.

A document is what YAML or JSON gives: mappings, lists, texts. Anything that is not understood is an
error, never a rule that is left out: a typing mistake must not open or close a door in silence.
Source: `PlainPermissionManager.java`, `Permission.java`, `PlainAccessConfig.java`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, Final

from ledgermq.broker.access.addresses import AddressPattern
from ledgermq.state.errors import AccessRulesError

# Upstream's least lengths of both keys, and bounds of ours.
_KEY_CHARS_MIN: Final = 7
_KEY_CHARS_MAX: Final = 256
_ACCOUNTS_MAX: Final = 10_000
_PERMISSIONS_MAX: Final = 10_000
_ADDRESSES_MAX: Final = 1000

_ACCOUNT_MEMBERS: Final = frozenset(
    ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm",
     "defaultGroupPerm", "topicPerms", "groupPerms")
)  # fmt: skip


class Permission(IntFlag):
    """What an account may do with a topic or group; upstream's bits."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


_PERMISSIONS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


def allows(owned: Permission, needed: Permission) -> bool:
    """Tells whether a permission is enough; ANY is needed where either of PUB and SUB will do."""
    if owned & Permission.DENY:
        return False
    if needed & Permission.ANY:
        return bool(owned & (Permission.PUB | Permission.SUB))
    return bool(owned & needed)


@dataclass(slots=True, frozen=True, kw_only=True)
class Account:
    """One account; its texts are those of the file."""

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: AddressPattern
    is_admin: bool
    default_topic_permission: Permission
    default_group_permission: Permission
    # By name; a group without the prefix of its retry topic.
    topic_permissions: Mapping[str, Permission]
    group_permissions: Mapping[str, Permission]
    # The account as the file has it.
    source: Mapping[str, Any] = field(repr=False)

    @property
    def has_lists(self) -> bool:
        """True when permissions are named one by one."""
        return bool(self.topic_permissions or self.group_permissions)

    @property
    def has_rights(self) -> bool:
        """True when there is a topic or a group, known or not, that the account may use."""
        owned = (
            self.default_topic_permission,
            self.default_group_permission,
            *self.topic_permissions.values(),
            *self.group_permissions.values(),
        )
        return any(allows(permission, Permission.ANY) for permission in owned)


@dataclass(slots=True, frozen=True, kw_only=True)
class AccessRules:
    """Everything that plain_acl.yml says, but its version."""

    # Clients at these addresses may do everything.
    white_addresses: tuple[AddressPattern, ...] = ()
    accounts: Mapping[str, Account] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """Returns the content of the file."""
        return {
            "globalWhiteRemoteAddresses": [pattern.text for pattern in self.white_addresses],
            "accounts": [dict(account.source) for account in self.accounts.values()],
        }

    def with_account(self, change: Mapping[str, Any]) -> "AccessRules":
        """Returns the rules with an account added, or members of a known one replaced.

        Raises:
            AccessRulesError: the account would be none.
        """
        known = self.accounts.get(str(change.get("accessKey")))
        account = _account({**(known.source if known is not None else {}), **change})
        accounts = {**self.accounts, account.access_key: account}
        _check_count("accounts", len(accounts), _ACCOUNTS_MAX)
        return replace(self, accounts=accounts)

    def without_account(self, access_key: str) -> "AccessRules":
        """Returns the rules without an account.

        Raises:
            AccessRulesError: there is none of that name.
        """
        if access_key not in self.accounts:
            raise AccessRulesError(f"there is no account with the accessKey {access_key[:64]!r}")
        others = {key: value for key, value in self.accounts.items() if key != access_key}
        return replace(self, accounts=others)

    def with_white_addresses(self, texts: Iterable[str]) -> "AccessRules":
        """Returns the rules with other addresses that may do everything.

        Raises:
            AccessRulesError: a text is no pattern of addresses.
        """
        return replace(self, white_addresses=_white_addresses(list(texts)))


def merged_rules(parts: Sequence[AccessRules]) -> AccessRules:
    """Returns the rules of several files; of two accounts with one access key the first counts.

    Raises:
        AccessRulesError: together they are too many.
    """
    accounts: dict[str, Account] = {}
    for part in parts:
        for access_key, account in part.accounts.items():
            accounts.setdefault(access_key, account)
    addresses = tuple(pattern for part in parts for pattern in part.white_addresses)
    _check_count("accounts", len(accounts), _ACCOUNTS_MAX)
    _check_count("globalWhiteRemoteAddresses", len(addresses), _ADDRESSES_MAX)
    return AccessRules(white_addresses=addresses, accounts=accounts)


def parse_rules(document: object) -> AccessRules:
    """Reads the content of a plain_acl.yml; members of it that have no meaning are left out.

    Raises:
        AccessRulesError: something in it is not what it should be.
    """
    if not isinstance(document, Mapping):
        raise AccessRulesError("the file is no mapping with globalWhiteRemoteAddresses or accounts")
    entries = document.get("accounts")
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise AccessRulesError("accounts is no list")
    _check_count("accounts", len(entries), _ACCOUNTS_MAX)
    accounts: dict[str, Account] = {}
    for entry in entries:
        account = _account(entry)
        if account.access_key in accounts:
            raise AccessRulesError(f"two accounts have the accessKey {account.access_key!r}")
        accounts[account.access_key] = account
    addresses = _white_addresses(document.get("globalWhiteRemoteAddresses"))
    return AccessRules(white_addresses=addresses, accounts=accounts)


def _white_addresses(value: object) -> tuple[AddressPattern, ...]:
    texts = _texts("globalWhiteRemoteAddresses", value)
    _check_count("globalWhiteRemoteAddresses", len(texts), _ADDRESSES_MAX)
    return tuple(_pattern("globalWhiteRemoteAddresses", text) for text in texts)


def _account(entry: object) -> Account:
    if not isinstance(entry, Mapping):
        raise AccessRulesError("an account is no mapping")
    # Numbers and the like are texts to Java, too.
    access_key = _key(entry, "accessKey", "an account")
    where = f"account {access_key!r}"
    unknown = sorted(str(name) for name in entry if name not in _ACCOUNT_MEMBERS)
    if unknown:
        raise AccessRulesError(f"{where}: unknown member {unknown[0][:64]!r}")
    is_admin = entry.get("admin")
    if is_admin is not None and not isinstance(is_admin, bool):
        raise AccessRulesError(f"{where}: admin is {is_admin!r}, allowed are true and false")
    address = entry.get("whiteRemoteAddress")
    return Account(
        access_key=access_key,
        secret_key=_key(entry, "secretKey", where),
        white_remote_address=_pattern(where, "" if address is None else str(address)),
        is_admin=bool(is_admin),
        default_topic_permission=_permission(where, entry.get("defaultTopicPerm")),
        default_group_permission=_permission(where, entry.get("defaultGroupPerm")),
        topic_permissions=_permissions(where, "topicPerms", entry.get("topicPerms")),
        group_permissions=_permissions(where, "groupPerms", entry.get("groupPerms")),
        source=dict(entry),
    )


def _key(entry: Mapping[Any, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if value is None or isinstance(value, Mapping | list):
        raise AccessRulesError(f"{where}: {name} is missing")
    text = str(value)
    if not _KEY_CHARS_MIN <= len(text) <= _KEY_CHARS_MAX:
        raise AccessRulesError(
            f"{where}: {name} has {len(text)} characters,"
            f" allowed are {_KEY_CHARS_MIN} to {_KEY_CHARS_MAX}"
        )
    return text


def _pattern(where: str, text: str) -> AddressPattern:
    try:
        return AddressPattern(text)
    except ValueError as error:
        raise AccessRulesError(f"{where}: {error}") from error


def _permission(where: str, value: object) -> Permission:
    if value is None:
        return Permission.DENY
    permission = _PERMISSIONS.get(str(value).strip())
    if permission is None:
        raise AccessRulesError(
            f"{where}: the permission {str(value)[:64]!r} is unknown,"
            f" allowed are {', '.join(_PERMISSIONS)}"
        )
    return permission


def _permissions(where: str, name: str, value: object) -> dict[str, Permission]:
    texts = _texts(f"{where}: {name}", value)
    _check_count(f"{where}: {name}", len(texts), _PERMISSIONS_MAX)
    permissions = {}
    for text in texts:
        resource, equals, permission = text.partition("=")
        if not equals or not resource.strip():
            raise AccessRulesError(f"{where}: {name} has {text[:64]!r}, not of the form name=PUB")
        permissions[resource.strip()] = _permission(where, permission)
    return permissions


def _texts(where: str, value: object) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise AccessRulesError(f"{where} is no list")
    return [str(text) for text in value if text is not None]


def _check_count(what: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise AccessRulesError(f"{count} {what}, allowed are {count_max}")
