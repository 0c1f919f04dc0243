"""AccessRules: the content of plain_acl.yml as a value, checked; and changes that give a new one.

A document is what YAML or JSON gives: mappings, lists, texts. Anything that is not understood is an
error, never a rule that is left out: a typing mistake must not open or close a door in silence.
Source: `PlainPermissionManager.java`, `Permission.java`, `PlainAccessConfig.java`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, Final

from ledgermq.access.addresses import AddressPattern
from ledgermq.access.entries import ACCOUNTS_MAX, ADDRESSES_MAX, EntryReader
from ledgermq.broker.access.quota import QUOTA_MEMBERS, Quota, parse_quota
from ledgermq.protocol.names import RETRY_PREFIX
from ledgermq.state.errors import AccessRulesError

_PERMISSIONS_MAX: Final = 10_000
_ENTRIES: Final = EntryReader(AccessRulesError)

_ACCOUNT_MEMBERS: Final = frozenset(
    ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm",
     "defaultGroupPerm", "topicPerms", "groupPerms", *QUOTA_MEMBERS,
     # Of name servers, which may have the same file; they mean nothing here.
     "brokerNames", "certificateNames")
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


# Plain numbers: a heart beat is judged by a thousand permissions, and `&` of two flags makes a
# third one, which takes longer than all else here.
_DENY: Final = int(Permission.DENY)
_ANY: Final = int(Permission.ANY)
_EITHER: Final = int(Permission.PUB | Permission.SUB)
_common_bits: Final = int.__and__


def allows(owned: Permission, needed: Permission) -> bool:
    """Tells whether a permission is enough; ANY is needed where either of PUB and SUB will do."""
    if _common_bits(owned, _DENY):
        return False
    return _common_bits(owned, _EITHER if _common_bits(needed, _ANY) else needed) != 0


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
    quota: Quota = field(default_factory=Quota)
    # The account as the file has it.
    source: Mapping[str, Any] = field(repr=False)

    @property
    def has_lists(self) -> bool:
        """True when permissions are named one by one."""
        return bool(self.topic_permissions or self.group_permissions)

    @property
    def is_unlimited(self) -> bool:
        """True for an admin who is not held to lists: everything is allowed and shown."""
        return self.is_admin and not self.has_lists

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
        _ENTRIES.check_count("accounts", len(accounts), ACCOUNTS_MAX)
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
        return replace(self, white_addresses=_ENTRIES.white_addresses(list(texts)))


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
    _ENTRIES.check_count("accounts", len(accounts), ACCOUNTS_MAX)
    _ENTRIES.check_count("globalWhiteRemoteAddresses", len(addresses), ADDRESSES_MAX)
    return AccessRules(white_addresses=addresses, accounts=accounts)


def parse_rules(document: object) -> AccessRules:
    """Reads the content of a plain_acl.yml; members of it that have no meaning are left out.

    Raises:
        AccessRulesError: something in it is not what it should be.
    """
    members = _ENTRIES.document(document)
    accounts: dict[str, Account] = {}
    for entry in _ENTRIES.items("accounts", members.get("accounts"), ACCOUNTS_MAX):
        account = _account(entry)
        if account.access_key in accounts:
            raise AccessRulesError(f"two accounts have the accessKey {account.access_key!r}")
        accounts[account.access_key] = account
    addresses = _ENTRIES.white_addresses(members.get("globalWhiteRemoteAddresses"))
    return AccessRules(white_addresses=addresses, accounts=accounts)


def _account(entry: object) -> Account:
    members, access_key, where = _ENTRIES.account(entry, _ACCOUNT_MEMBERS)
    topics = _permissions(where, "topicPerms", members.get("topicPerms"))
    groups = _permissions(where, "groupPerms", members.get("groupPerms"))
    # A retry topic is judged by its group, as upstream does, which keeps groups by these names.
    for name in [topic for topic in topics if topic.startswith(RETRY_PREFIX)]:
        group, permission = name.removeprefix(RETRY_PREFIX), topics.pop(name)
        # As a group is asked for no more than SUB, to write there says nothing else.
        known = groups.setdefault(group, permission)
        if allows(known, Permission.SUB) != allows(permission, Permission.SUB):
            raise AccessRulesError(
                f"{where}: topicPerms has {name[:64]!r}, unlike {group[:64]!r} of groupPerms"
            )
    return Account(
        access_key=access_key,
        secret_key=_ENTRIES.key(members, "secretKey", where),
        white_remote_address=_ENTRIES.white_address(members, where),
        is_admin=_ENTRIES.is_admin(members, where),
        default_topic_permission=_permission(where, members.get("defaultTopicPerm")),
        default_group_permission=_permission(where, members.get("defaultGroupPerm")),
        topic_permissions=topics,
        group_permissions=groups,
        quota=parse_quota(members, where),
        source=dict(members),
    )


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
    texts = _ENTRIES.texts(f"{where}: {name}", value, _PERMISSIONS_MAX)
    permissions: dict[str, Permission] = {}
    for text in texts:
        resource, equals, permission = text.partition("=")
        if not equals or not resource.strip():
            raise AccessRulesError(f"{where}: {name} has {text[:64]!r}, not of the form name=PUB")
        wanted = _permission(where, permission)
        if permissions.setdefault(resource.strip(), wanted) != wanted:
            raise AccessRulesError(
                f"{where}: {name} has {resource.strip()[:64]!r} twice, not alike"
            )
    return permissions
