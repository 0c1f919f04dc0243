"""What a request touches, as needs, and whether an account has the right to each. Pure.

Source: `PlainPermissionManager.checkPerm`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ledgermq.broker.access.rules import AccessRules, Account, Permission, allows
from ledgermq.protocol.names import RETRY_PREFIX
from ledgermq.state import names

# Longer ones are cut in the answer.
NAME_CHARS_SHOWN = 128


class Need(NamedTuple):
    """One thing that a request touches."""

    is_group: bool
    name: str
    permission: Permission


def topic_needs(name: str | None, permission: Permission) -> Iterator[Need]:
    """A topic; the retry topic of a group is that group, whoever writes or reads it.

    An empty name is one that nobody has a right to; None touches nothing.
    """
    if name is None:
        return
    if name.startswith(RETRY_PREFIX):
        yield Need(True, name[len(RETRY_PREFIX) :], Permission.SUB)
    else:
        yield Need(False, name, permission)


def group_needs(name: str | None) -> Iterator[Need]:
    """A group; None touches nothing."""
    if name is not None:
        yield Need(True, name, Permission.SUB)


def find_refusal(account: Account, need: Need, reply_topic: str) -> str | None:
    """Returns why an account may not touch something; None when it may.

    Args:
        account: as the rules in force have it.
        need: one thing that a request touches.
        reply_topic: where replies of this cluster are kept.
    """
    if need.is_group:
        kind, named = "group", account.group_permissions
        default = account.default_group_permission
    else:
        kind, named = "topic", account.topic_permissions
        default = account.default_topic_permission
        if names.is_closed_for_sends(need.name):
            # Messages of all topics stand there: whoever may read them is named.
            default = Permission.DENY
        elif names.gathers_messages(need.name, reply_topic) and not _reads_for(account, need.name):
            # The same; who has something to write there writes it.
            default &= Permission.PUB
    owned = named.get(need.name)
    if allows(default if owned is None else owned, need.permission):
        return None
    source = "No default permission" if owned is None else "No permission"
    wanted = "PUB or SUB" if need.permission is Permission.ANY else need.permission.name
    return (
        f"{source} for {kind}:{need.name[:NAME_CHARS_SHOWN]}:"
        f" accessKey={account.access_key} needs {wanted}"
    )


def goes_on(access_key: str, groups: Iterable[str], before: AccessRules, now: AccessRules) -> bool:
    """Tells whether a client that was let in goes on under other rules.

    Args:
        access_key: of its account.
        groups: of consumers; it is a member.
        before, now: the rules under which it was let in, and those in force.
    """
    was, account = before.accounts.get(access_key), now.accounts.get(access_key)
    if account is None or (was is not None and was.secret_key != account.secret_key):
        return False
    return account.is_unlimited or all(
        find_refusal(account, need, "") is None for group in groups for need in group_needs(group)
    )


def _reads_for(account: Account, topic: str) -> bool:
    """Tells whether an account may read as the group whose dead letters these are."""
    if not topic.startswith(names.DEAD_LETTER_PREFIX):
        return False
    group = topic[len(names.DEAD_LETTER_PREFIX) :]
    return all(find_refusal(account, need, "") is None for need in group_needs(group))


class AccountSight:
    """What an account may be shown (`broker/sight.py`)."""

    __slots__ = ("_account", "_reply_topic")

    def __init__(self, account: Account, reply_topic: str) -> None:
        """Binds the account as the rules in force have it, and where replies are kept."""
        self._account, self._reply_topic = account, reply_topic

    @property
    def key(self) -> Account:
        """The account; rules that change make another one of it."""
        return self._account

    def sees_topic(self, name: str) -> bool:
        """True where it may send to the topic or read it; a retry topic is its group."""
        return self._has(topic_needs(name, Permission.ANY))

    def sees_group(self, name: str) -> bool:
        """True where it may read as the group."""
        return self._has(group_needs(name))

    def _has(self, needs: Iterator[Need]) -> bool:
        return all(find_refusal(self._account, one, self._reply_topic) is None for one in needs)
