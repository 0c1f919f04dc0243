"""Whose producers are asked about a half message, and by that get to read it.

A producer says by its heart beat that it is of a group; that needs no right, as with upstream. So
the group alone does not decide: a half message goes to the account that sent it. One that was sent
without an account, from an address that may do everything or before access control was on, goes to
accounts that may send to its topic.
"""

from collections.abc import Callable

from ledgermq.broker.access.rights import Need, find_refusal
from ledgermq.broker.access.rules import Permission
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.records.half_messages import HalfMessage, account_mark


def may_be_asked(table: RulesTable | None) -> Callable[[HalfMessage, str], bool]:
    """Returns the test of a half message and an access key; `table` None: no access control."""

    def test(half: HalfMessage, access_key: str) -> bool:
        if table is None:
            return True
        account = table.rules.accounts.get(access_key)
        if account is None:
            return False
        if half.account_mark is not None:
            return half.account_mark == account_mark(access_key)
        if account.is_admin and not account.has_lists:
            return True
        # Which topic has replies says who reads them, and this is of who writes.
        return find_refusal(account, Need(False, half.target.topic, Permission.PUB), "") is None

    return test
