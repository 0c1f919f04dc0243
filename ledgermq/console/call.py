"""Call: what a handler of the API is given; a handler is a function of it alone."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from ledgermq.console.audit import Audit
from ledgermq.console.cluster import ClusterView
from ledgermq.console.sampler import Sampler
from ledgermq.console.searches import Searches
from ledgermq.console.shapes.actions import Action, Actions
from ledgermq.console.shapes.elements import ListQuery, Order, Shape
from ledgermq.console.turns import Turns
from ledgermq.http.replies import RequestError

_T = TypeVar("_T")
_Shape = TypeVar("_Shape", bound=Shape)


class Terms(NamedTuple):
    """What a console was started with."""

    # Where figures of a longer time than an hour are; empty: nowhere.
    longer_history: str
    # Folder of the logs of the programs of a cluster on this machine.
    log_folder: Path | None
    # Addresses of the brokers whose word counts who is let in, and who are told of new accounts;
    # empty: of all that name servers know.
    judges: tuple[str, ...] = ()


class Changes(Protocol):
    """What handlers need of the register of changes."""

    def preview(self, call: "Call", kind: str, plan: Any) -> Action:
        """Notes what somebody wants."""

    def confirm(self, call: "Call", token: str) -> Action:
        """Begins a run, once."""

    def stop(self, call: "Call") -> Action:
        """Ends a run before its next item."""

    def look(self, call: "Call") -> Action:
        """Returns how far a change is."""

    def listed(self, call: "Call") -> Actions:
        """Returns what was confirmed lately."""


class Call(NamedTuple):
    """One request of the API, read and let in."""

    cluster: ClusterView
    sampler: Sampler
    terms: Terms
    audit: Audit
    changes: "Changes"
    searches: Searches
    # For whoever reads messages with their bodies.
    reading: Turns
    # Parts of the path by name.
    path: dict[str, str]
    query: Shape | None
    body: Any
    # Whose: number of the session, and its account (empty where none is asked for).
    session: str
    account: str
    # Where the request came from.
    peer: str
    # ms since 1970
    now_ms: int
    # An admin at the name servers of this cluster, or nobody is asked for an account: what others
    # did to their clusters is shown, which no broker judges.
    sees_all: bool = False
    # The same at all name servers of the console: what is of none of them is shown, too.
    sees_console: bool = False
    # At the others the same access key may be somebody else's.
    has_other_sets: bool = False

    def sees_account(self, account: str) -> bool:
        """Tells whether what an account did to this cluster through this console is shown: to
        admins, and else to itself.
        """
        return self.sees_all or account == self.account

    def sees_sign_in(self, account: str) -> bool:
        """The same of who signed in, at whatever name servers."""
        return self.sees_console or (account == self.account and not self.has_other_sets)

    def asks(self, kind: type[_Shape]) -> _Shape:
        """Returns the query."""
        assert isinstance(self.query, kind)
        return self.query

    def number(self, name: str) -> int:
        """Returns a part of the path that is a number.

        Raises:
            RequestError: it is none.
        """
        text = self.path[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            raise RequestError(400, f"{name} is a number", field=name, value=text, limit=[0, 2**63])
        return int(text)


# What serves a route that gives JSON.
Handler = Callable[[Call], Awaitable[Shape]]


def words_of(text: str, field: str, allowed: Iterable[str]) -> frozenset[str]:
    """Reads words joined by commas.

    Raises:
        RequestError: one of them is not allowed.
    """
    words = frozenset(word for word in text.split(",") if word)
    limit = sorted(allowed)
    for word in sorted(words - set(limit)):
        message = f"{field} is made of {', '.join(limit)}, joined by commas"
        raise RequestError(400, message, field=field, value=word, limit=limit)
    return words


def matching(names: Iterable[str], text: str) -> list[str]:
    """Returns the names that hold a text, upper and lower case being one."""
    wanted = text.casefold()
    return [name for name in names if wanted in name.casefold()] if wanted else list(names)


def page_of(rows: Sequence[_T], query: ListQuery) -> Sequence[_T]:
    """Returns the rows of a page."""
    return rows[query.offset : query.offset + query.limit]


def ordered(rows: Iterable[_T], key: Callable[[_T], Any], order: Order) -> list[_T]:
    """Returns rows in order; those whose key is None stand last, however it runs."""
    known = [(key(row), row) for row in rows]
    have = [(value, row) for value, row in known if value is not None]
    have.sort(key=lambda pair: pair[0], reverse=order == "desc")
    return [row for _, row in have] + [row for value, row in known if value is None]
