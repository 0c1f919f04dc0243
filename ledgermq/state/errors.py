"""Errors of the broker.

A processor raises one of these; `dispatch.py` alone knows which response code each class has on
the wire. The text of an error is the remark that the client sees, so it names the cause, the
measured value, the limit and, where there is one, the key to change.
"""

from typing import TypeGuard


class BrokerError(Exception):
    """Anything the broker refuses or cannot do; the text is fit for a response remark."""


class ConfigError(BrokerError):
    """A configuration value that cannot be used: the broker does not start.

    Attributes:
        key: the configuration key as it stands in the file.
        value: the text found.
        allowed: what would have been accepted.
    """

    def __init__(self, key: str, value: str, allowed: str) -> None:
        super().__init__(f"configuration key {key} has the value {value!r}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class StateFileError(BrokerError):
    """A file under `config/` and its `.bak` copy are both unreadable."""


class StateFileTooLargeError(StateFileError):
    """A file under `config/` would be larger than what is read at a start; it stays as it is."""

    def __init__(self, path: object, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{path} would have {size_bytes} bytes or more, allowed are {limit_bytes}")


class InvalidRequestError(BrokerError):
    """The request cannot be understood or names something that cannot exist."""


class InvalidParameterError(BrokerError):
    """A value that is known, and not allowed here."""


class SystemBusyError(BrokerError):
    """A limit is reached; the same request may succeed later."""


class ServiceUnavailableError(BrokerError):
    """This member does not take writes now: no leader, stopping, or an error on its disk."""


class CommitTimeoutError(BrokerError):
    """No majority confirmed a message in time; it may still be stored."""


def is_refused(error: BrokerError | None) -> TypeGuard[BrokerError]:
    """Tells whether a change is refused, and not only late: what is late may come yet."""
    return error is not None and not isinstance(error, CommitTimeoutError)


class IllegalMessageError(BrokerError):
    """The message itself breaks a limit; sending it again cannot help."""


class NoPermissionError(BrokerError):
    """The broker, the topic or the group does not allow the operation."""


class AccessDeniedError(BrokerError):
    """Access control: nobody knows the caller, or its account may not do this."""


class AccessRulesError(BrokerError):
    """Rules of access control that cannot be used; those in force stay."""


class TopicNotFoundError(BrokerError):
    """The topic is unknown and was not created."""


class NotFoundError(BrokerError):
    """Nothing is stored under the given key, offset or time."""


class SubscriptionParseError(BrokerError):
    """The filter expression of a subscription does not parse."""


class FilterMissingError(BrokerError):
    """The registered SQL92 expression of a subscription did not parse."""


class SubscriptionMissingError(BrokerError):
    """The group, or the topic in its subscription, is not known from a heart beat."""


class SubscriptionOutdatedError(BrokerError):
    """The registered subscription is older than the one the pull was made for."""


class GroupNotFoundError(BrokerError):
    """The consumer group has no configuration and may not be created."""


class ConsumerOfflineError(BrokerError):
    """No client of the group is connected to this broker."""
