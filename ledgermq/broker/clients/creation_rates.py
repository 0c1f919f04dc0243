"""CreationRates: how fast topics and groups come into being for one address, and for one account.

A topic or a group stays until somebody removes it, and what made it is not stored with it: so a
bound of what each maker has at any time would be a guess. There is a rate instead, with room for
the start of a fleet, and the bound of each table. A group counts with its retry and dead-letter
topics. Pure; time is monotonic.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.protocol.rate_limit import RateLimit
from ledgermq.state.errors import SystemBusyError

# One who has an IPv6 address has all that begin with these bytes.
_IPV6_BYTES: Final = 8
_NAME_CHARS_SHOWN: Final = 128


class Maker(Protocol):
    """A connection whose request makes something."""

    # Address and port of the client, as records hold them.
    context: Any
    peer_host: str
    # Who signed the request; None where nobody looks.
    account: str | None


class _Rates(NamedTuple):
    """The rates of one kind of things."""

    noun: str
    of_address: RateLimit
    address_key: str
    of_account: RateLimit
    account_key: str
    burst_key: str


class CreationRates:
    """The allowances of all addresses and accounts."""

    def __init__(self, config: BrokerConfig, clock_ms: Callable[[], float]) -> None:
        """Begins with whole allowances; `clock_ms` is monotonic."""
        self._clock_ms = clock_ms
        self._topics = _Rates(
            "topic",
            _limit(config.new_topics_rate, config.new_topics_burst),
            "maxNewTopicsPerAddress",
            _limit(config.account_topics_rate, config.new_topics_burst),
            "maxNewTopicsPerAccount",
            "maxNewTopicsAtOnce",
        )
        self._groups = _Rates(
            "group",
            _limit(config.new_groups_rate, config.new_groups_burst),
            "maxNewGroupsPerAddress",
            _limit(config.account_groups_rate, config.new_groups_burst),
            "maxNewGroupsPerAccount",
            "maxNewGroupsAtOnce",
        )

    def take_topic(self, maker: Maker, name: str) -> None:
        """Counts a topic that comes into being for a connection's request.

        Raises:
            SystemBusyError: its address, or who signed the request, made too many lately.
        """
        self._take(self._topics, maker, name)

    def take_group(self, maker: Maker, name: str) -> None:
        """As `take_topic`, of a group."""
        self._take(self._groups, maker, name)

    def _take(self, rates: _Rates, maker: Maker, name: str) -> None:
        now_s = self._clock_ms() / 1000
        account = maker.account
        if account is not None and not rates.of_account.take(account, now_s):
            who = f"account {account[:_NAME_CHARS_SHOWN]}"
            raise _refusal(rates, name, who, rates.of_account, rates.account_key)
        address, _ = maker.context
        key = address if len(address) <= _IPV6_BYTES else address[:_IPV6_BYTES]
        if not rates.of_address.take(key, now_s):
            who = maker.peer_host
            raise _refusal(rates, name, who, rates.of_address, rates.address_key)


def _limit(per_second: int, burst: int) -> RateLimit:
    return RateLimit(per_second, max(per_second, burst))


def _refusal(rates: _Rates, name: str, who: str, limit: RateLimit, key: str) -> SystemBusyError:
    return SystemBusyError(
        f"{rates.noun}[{name}] not created: {who} creates more than {limit.per_second}"
        f" {rates.noun}s a second (key {key}), and more than {limit.burst} at once"
        f" (key {rates.burst_key})"
    )
