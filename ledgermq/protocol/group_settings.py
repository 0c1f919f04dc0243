"""GroupSettings: what SubscriptionGroupConfig of 5.x says of a group beyond that of 4.9.

Brokers of 5.x keep it for their proxies, which consume in order, again and in time as it says.
Source: SubscriptionGroupConfig.java, GroupRetryPolicy.java, SimpleSubscriptionData.java of 5.3.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, Self

import msgspec

from ledgermq.protocol import lenient_json
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.headers.header import Int32, Int64
from ledgermq.protocol.json_body import JsonBody

# Of the settings of one group as JSON: they stand in one record of the broker's state.
SETTINGS_BYTES_MAX: Final = 65_536


class ExponentialRetryPolicy(JsonBody, frozen=True):
    """ExponentialRetryPolicy: each wait is a multiple of the one before."""

    # ms
    initial: Int64 = 5000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(JsonBody, frozen=True):
    """CustomizedRetryPolicy: each wait by itself."""

    # ms; None: those of the delay levels.
    next: list[Int64] | None = None


class GroupRetryPolicy(JsonBody, frozen=True):
    """GroupRetryPolicy: how long a message waits that was not consumed."""

    type: Literal["EXPONENTIAL", "CUSTOMIZED"] = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(JsonBody, frozen=True):
    """SimpleSubscriptionData: a subscription that the group is to have."""

    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class GroupSettings(JsonBody, frozen=True):
    """The members of SubscriptionGroupConfig that 4.9 does not have."""

    consume_message_orderly: bool = False
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}

    def to_plain(self) -> dict[str, Any]:
        """Returns all members as 5.x writes them: what is null is left out."""
        plain: dict[str, Any] = _without_nulls(msgspec.to_builtins(self))
        return plain

    def changes(self) -> dict[str, Any]:
        """Returns the members that are not as they are for a new group."""
        if self == DEFAULT_SETTINGS:
            return {}
        defaults = DEFAULT_SETTINGS.to_plain()
        return {
            name: value for name, value in self.to_plain().items() if defaults.get(name) != value
        }

    @property
    def json_bytes(self) -> int:
        """What they take as JSON."""
        return len(lenient_json.write(self.changes()))

    @classmethod
    def kept(cls, value: Mapping[str, Any]) -> Self:
        """Reads what a file or another broker tells of a group; what does not fit is as for a new
        group.
        """
        told = {name: value[name] for name in _NAMES if value.get(name) is not None}
        if not told:
            return cls()
        fitting = {}
        for name, member in told.items():
            # What cannot be written again does not fit either.
            with suppress(ProtocolError):
                lenient_json.write(cls.from_plain({name: member}))
                fitting[name] = member
        settings = cls.from_plain(fitting)
        return settings if settings.json_bytes <= SETTINGS_BYTES_MAX else cls()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


_NAMES: Final = GroupSettings.__struct_encode_fields__
DEFAULT_SETTINGS: Final = GroupSettings()
