"""Accounts and their rules."""

from typing import Literal

from ledgermq.console.shapes.elements import Answers, Name, Shape


class Account(Shape, frozen=True, kw_only=True):
    """An account, without its secret."""

    access_key: str
    is_admin: bool
    addresses: str
    default_topic: str
    default_group: str
    # topic=PUB|SUB
    topics: list[str]
    groups: list[str]
    # True: members have different rules for it.
    differs: bool


class Access(Shape, frozen=True, kw_only=True):
    """Who may what."""

    # False: brokers ask for no account, or do not tell their rules; `reason` says which.
    enabled: bool
    reason: str
    accounts: list[Account]
    # Addresses that need no account.
    open_addresses: list[str]
    # Member -> number of changes.
    versions: dict[str, str]
    answers: Answers


class MayQuestion(Shape, frozen=True, kw_only=True):
    """May an account do something?"""

    access_key: Name
    kind: Literal["topic", "group"]
    name: Name
    what: Literal["PUB", "SUB"]


class MayAnswer(Shape, frozen=True, kw_only=True):
    """Whether it may, and by which rule."""

    allowed: bool
    because: str
