"""The quota of an account as the rules say it; `quotas.py` keeps to it. Starts no reactor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ledgermq.state.errors import AccessRulesError

# Members of an account in the file, and the keys of their defaults.
MESSAGES: Final = "maxMessagesPerSecond"
BYTES: Final = "maxBytesPerSecond"
CONNECTIONS: Final = "maxConnections"
QUOTA_MEMBERS: Final = (MESSAGES, BYTES, CONNECTIONS)
_QUOTA_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Quota:
    """What one account may ask for; 0: as much as it likes, None: what the configuration says."""

    messages_s: int | None = None
    bytes_s: int | None = None
    connections: int | None = None


def parse_quota(entry: Mapping[Any, Any], where: str) -> Quota:
    """Reads the members of an account.

    Raises:
        AccessRulesError: one is no whole number, or out of range.
    """
    return Quota(*(_number(entry, name, where) for name in QUOTA_MEMBERS))


def _number(entry: Mapping[Any, Any], name: str, where: str) -> int | None:
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _QUOTA_MAX:
        raise AccessRulesError(
            f"{where}: {name} is {str(value)[:64]!r}, allowed are 0 to {_QUOTA_MAX}"
        )
    return value
