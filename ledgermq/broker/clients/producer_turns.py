"""Whose turn it is to be asked about a half message: of each group and account, the next producer.

Who is asked is drawn from those whom the message concerns, without looking through those of other
accounts, however many of them say that they are of the group. Pure.
"""

from collections.abc import Callable, Hashable


class ProducerTurns:
    """The live producers of each group, by the account that signed their heart beats."""

    def __init__(self) -> None:
        """Begins empty."""
        # group -> account, None where nobody had to sign -> connections in the order of turns
        self._groups: dict[str, dict[str | None, dict[Hashable, None]]] = {}

    def add(self, group_name: str, account: str | None, connection: Hashable) -> None:
        """Puts a producer at the end of the line; one that stands there keeps its place."""
        accounts = self._groups.setdefault(group_name, {})
        accounts.setdefault(account, {}).setdefault(connection)

    def remove(self, group_name: str, account: str | None, connection: Hashable) -> None:
        """Takes a producer out that was added with the same group and account."""
        accounts = self._groups[group_name]
        del accounts[account][connection]
        if not accounts[account]:
            del accounts[account]
            if not accounts:
                del self._groups[group_name]

    def next(self, group_name: str, is_meant: Callable[[str | None], bool]) -> Hashable | None:
        """Returns the connection of one producer of a group, another one each time.

        Args:
            group_name: the producer group.
            is_meant: whether producers of an account may be asked.

        Returns: None when there is no such producer.
        """
        accounts = self._groups.get(group_name, {})
        for account in accounts:
            if not is_meant(account):
                continue
            # Both to the end of their lines.
            line = accounts[account] = accounts.pop(account)
            connection = next(iter(line))
            del line[connection]
            line[connection] = None
            return connection
        return None
