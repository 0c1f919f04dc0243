"""Document: a table as upstream's JSON object, which may be read piece by piece. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# Yields the entries behind a name, in order; the table must not change meanwhile.
Behind = Callable[[str], Iterator[tuple[str, Any]]]


class Document(NamedTuple):
    """Small members, and behind them by their names tables of any size.

    Between two calls of a Behind the table may change: what is behind the last name that was read
    is as it is then.
    """

    head: Mapping[str, Any]
    tables: tuple[tuple[str, Behind], ...]

    def whole(self) -> dict[str, Any]:
        """Returns the object."""
        return {**self.head, **{name: dict(behind("")) for name, behind in self.tables}}
