"""Errors of the name server; each knows the response code it is answered with."""

from __future__ import annotations

from collections.abc import Sequence

from ledgermq.protocol.codes import ResponseCode


class NamesrvError(Exception):
    """A request that cannot be carried out."""

    response_code = ResponseCode.SYSTEM_ERROR


class ConfigError(NamesrvError):
    """A configuration value that cannot be used."""

    def __init__(self, key: str, value: str, allowed: str) -> None:
        super().__init__(f"{key} is {value!r}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class SettingsRefusedError(NamesrvError):
    """A tool may not change these keys; nothing was changed."""

    def __init__(self, keys: Sequence[str], allowed: Sequence[str]) -> None:
        super().__init__(
            f"{', '.join(keys)[:200]} cannot be changed while the name server runs, nothing was"
            f" changed; these can, until the next start: {', '.join(allowed)}"
        )
        self.keys = keys
        self.allowed = allowed


class AccountsError(NamesrvError):
    """A file of accounts that cannot be used."""


class NotAllowedError(NamesrvError):
    """Nobody knows the caller, or its account may not do this."""

    response_code = ResponseCode.NO_PERMISSION


class HeldError(NamesrvError):
    """A broker name, or what is registered under it, that somebody else holds."""

    response_code = ResponseCode.NO_PERMISSION

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} is held: {reason}; it is free when its holder leaves or is silent for too long"
        )
        self.what = what
        self.reason = reason


class BusyError(NamesrvError):
    """Too much waits already; to be tried again."""

    response_code = ResponseCode.SYSTEM_BUSY

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} wait already; try again")
        self.what = what
        self.limit = limit


class LineFullError(NamesrvError):
    """As many long answers wait as may; to be tried again."""

    response_code = ResponseCode.SYSTEM_BUSY


class RouteNotFoundError(NamesrvError):
    """No live broker serves the topic."""

    response_code = ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"No topic route info in name server for the topic: {topic}; no broker that registered "
            "here has it. Create it, or enable autoCreateTopicEnable on the brokers"
        )
        self.topic = topic


class ConfigItemNotFoundError(NamesrvError):
    """No such item in the key-value configuration."""

    response_code = ResponseCode.QUERY_NOT_FOUND

    def __init__(self, namespace: str, key: str | None) -> None:
        shown = "" if key is None else f" Key: {key}"
        super().__init__(f"No config item, Namespace: {namespace}{shown}")
        self.namespace = namespace
        self.key = key


class LimitError(NamesrvError):
    """A table would grow over its limit."""

    def __init__(self, table: str, value: int, limit: int, whose: str = "") -> None:
        of = f" of {whose}" if whose else ""
        super().__init__(f"{table}{of}: {value} is over the limit of {limit}")
        self.table = table
        self.value = value
        self.limit = limit


class BodyChecksumError(NamesrvError):
    """The body of a registration is not what its checksum says."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(f"crc32 not match: body has {found}, header says {expected}")
        self.found = found
        self.expected = expected
