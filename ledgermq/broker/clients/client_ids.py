"""Who holds which client id: the account that lives on it first, until its connections are gone.

Replies are addressed by the client id of a producer; locks of queues, and what tools ask, by group
and client id of a consumer; and everybody may see the ids of others. Under access control an id
that lives on a connection of one account is therefore refused to all others: that of a producer
anywhere, that of a consumer in its group, into which only those come who may read for it. A
connection without an account comes from an address that may do everything; with access control off
all are so. Pure.
"""

from collections.abc import Hashable
from typing import Final

from ledgermq.state.errors import AccessDeniedError

# Of one connection; stock clients have one. The oldest is forgotten for a newer one.
_IDS_OF_CONNECTION_MAX: Final = 64
# Longer ids are cut in the answer.
_ID_CHARS_SHOWN: Final = 128


class ClientIds:
    """The ids of all live producers, or of the members of one group, each with its accounts."""

    def __init__(self) -> None:
        """Begins empty."""
        # client id -> account -> connections; more than one account only beside None.
        self._holders: dict[str, dict[str | None, int]] = {}
        # connection -> client id -> account that it was signed by
        self._ids_of: dict[Hashable, dict[str, str | None]] = {}

    def check(self, client_id: str, account: str | None) -> None:
        """Checks that an account may speak for a client.

        Raises:
            AccessDeniedError: the id lives on a connection of another account.
        """
        if account is None:
            return
        if account not in self._holders.get(client_id, (account,)):
            raise AccessDeniedError(
                f"the client id {client_id[:_ID_CHARS_SHOWN]} lives on a connection of another"
                f" account than accessKey={account}"
            )

    def hold(self, connection: Hashable, client_id: str, account: str | None) -> None:
        """Notes that a client lives on a connection.

        Raises:
            AccessDeniedError: as for `check`; nothing changed.
        """
        self.check(client_id, account)
        ids = self._ids_of.setdefault(connection, {})
        if client_id in ids:
            if ids[client_id] == account:
                return
            self._release(client_id, ids.pop(client_id))
        elif len(ids) >= _IDS_OF_CONNECTION_MAX:
            oldest = next(iter(ids))
            self._release(oldest, ids.pop(oldest))
        ids[client_id] = account
        holders = self._holders.setdefault(client_id, {})
        holders[account] = holders.get(account, 0) + 1

    def forget(self, connection: Hashable) -> None:
        """Frees the ids of a connection that is gone, or is in no group any more."""
        for client_id, account in self._ids_of.pop(connection, {}).items():
            self._release(client_id, account)

    def _release(self, client_id: str, account: str | None) -> None:
        holders = self._holders[client_id]
        holders[account] -= 1
        if not holders[account]:
            del holders[account]
            if not holders:
                del self._holders[client_id]
