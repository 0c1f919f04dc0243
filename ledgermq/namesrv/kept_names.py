"""KeptNames: broker names whose brokers have no connection, kept for the account that had them.

A connection that blinks, or a broker that is started anew, is no farewell: until it would have
been silent for too long, no other account takes its name. Who unregisters has left. Pure: time is
passed in. Only where brokers have accounts.
"""

from typing import NamedTuple

from ledgermq.namesrv.registrations import LiveBroker, Registrant, RouteLimits


class _Kept(NamedTuple):
    registrant: Registrant
    # Monotonic ms.
    until_ms: float


class KeptNames:
    """Names without live brokers.

    Invariant: at most as many as there may be brokers, of one registrant as it may have.
    """

    def __init__(self, limits: RouteLimits) -> None:
        """Begins empty."""
        self._limits = limits
        self._kept: dict[str, _Kept] = {}
        # Names by the key of a registrant.
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, last: LiveBroker) -> None:
        """Keeps the name of a broker that was the last one of it and is not kept; not when as many
        are kept as may be: those that are stay.
        """
        registrant, limits = last.registrant, self._limits
        own = self._counts.get(registrant.key, 0)
        own_max = limits.brokers_max if registrant.is_free else limits.brokers_per_registrant_max
        if registrant.account is None or own >= own_max or len(self._kept) >= limits.brokers_max:
            return
        self._kept[last.broker_name] = _Kept(registrant, last.seen_ms + last.expires_after_ms)
        self._counts[registrant.key] = own + 1

    def find_holder(self, broker_name: str, now_ms: float) -> Registrant | None:
        """Returns for whom a name is kept."""
        kept = self._kept.get(broker_name)
        return None if kept is None or now_ms > kept.until_ms else kept.registrant

    def taken(self, broker_name: str) -> None:
        """Forgets a name under which a broker is registered."""
        if broker_name in self._kept:
            self._drop(broker_name)

    def left(self, broker_name: str, account: str | None) -> None:
        """Forgets a name when its account unregisters it, without a connection before."""
        kept = self._kept.get(broker_name)
        if kept is not None and kept.registrant.account == account:
            self._drop(broker_name)

    def expire(self, now_ms: float) -> None:
        """Forgets those of whom nobody came back."""
        for broker_name in [name for name, one in self._kept.items() if now_ms > one.until_ms]:
            self._drop(broker_name)

    def _drop(self, broker_name: str) -> None:
        key = self._kept.pop(broker_name).registrant.key
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
