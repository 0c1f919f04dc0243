"""Who looks: sign-in, sign-out, and which clusters there are."""

from typing import Annotated, Literal

from msgspec import Meta

from ledgermq.console.shapes.elements import Answers, Shape

Role = Literal["open", "admin", "user", "reader", "none"]


class SignIn(Shape, frozen=True, kw_only=True):
    """An account of the brokers."""

    access_key: Annotated[str, Meta(min_length=1, max_length=255)]
    secret_key: Annotated[str, Meta(min_length=1, max_length=4096)]
    # A cluster whose brokers know the account; empty: the first.
    cluster: Annotated[str, Meta(max_length=512)] = ""


class Session(Shape, frozen=True, kw_only=True):
    """Who this browser is signed in as.

    `csrf_token` goes into the header X-CSRF-Token of every request but GET.
    """

    # False: only this address and POST /api/v1/session answer until somebody signs in.
    signed_in: bool
    # False: the console asks for no account.
    sign_in_needed: bool
    # Null when nobody is signed in, or no account is asked for.
    account: str | None
    # open: no accounts; admin: all; user: what the account's rules allow; reader: changes nothing
    role: Role
    # False: every change is refused.
    may_change: bool
    csrf_token: str
    # The session ends after so long without a request, and at this moment at the latest; null when
    # it does not end.
    idle_s: int | None
    ends_ms: int | None
    # Of LedgerMQ.
    version: str


class Cluster(Shape, frozen=True, kw_only=True):
    """A cluster to choose."""

    # Stands for {cluster} in all addresses.
    id: str
    name: str
    name_servers: list[str]
    broker_groups: int
    brokers: int


class Clusters(Shape, frozen=True, kw_only=True):
    """All clusters that the name servers know."""

    clusters: list[Cluster]
    # Asked: name servers, one of each set.
    answers: Answers
