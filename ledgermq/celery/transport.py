"""Transport: the URL scheme `ledgermq://` of kombu, and with it of Celery.

What is promised. A message that was published is stored by a majority of the broker's group, in
each shared queue that it is for. It is delivered at least once: it counts as done when it is
acknowledged, not before, whatever the order of acknowledgements; a worker that dies leaves what it
has not acknowledged to others after `lost_after_s`; one that ends in order leaves it at once.

    worker killed       silent; others declare it gone in the log of the queue, and go on with its
                        messages (claims.py, lane.py), but for those that have ended as many workers
                        as `worker_deaths_max`: these are dropped, or go to the dead letters
    leader killed       sends and reads go on with the next leader; nobody is declared gone for
                        silence in between; an event that was stored twice counts once
    worker comes        it reads the log from the last snapshot on, and takes from then on what
                        nobody has: no message moves from one worker to another because of that
    fork                the child makes its own connection; what the parent has stays with it

Not here: priorities (ignored), times to live of messages and queues (Celery checks `expires`
itself), headers exchanges, bindings between exchanges.
"""

import queue
import re
import time
from typing import Any, Final

from kombu.transport import TRANSPORT_ALIASES, virtual

from ledgermq import __version__
from ledgermq.celery.channel import Channel, QueueConsumer
from ledgermq.celery.errors import TransportError
from ledgermq.celery.options import SCHEME, Settings, read_settings
from ledgermq.celery.station import Got, OpenStation, Stations
from ledgermq.client import (
    ClosedError,
    NameServerError,
    NoRouteError,
    RefusedError,
    SendError,
    UnreachableError,
)

_stations: Final = Stations()
# The secret key in a URL: in front of the hosts, or among the options.
_SECRETS: Final = (re.compile(r"(://[^/@:]*:)[^/@]*(?=@)"), re.compile(r"([?&]secret_key=)[^&]*"))


class Transport(virtual.Transport):
    """A connection of kombu; those of one URL share what they have of the broker."""

    Channel = Channel
    can_parse_url = True
    default_port = 9876
    driver_type = SCHEME
    driver_name = SCHEME
    connection_errors = virtual.Transport.connection_errors + (
        ClosedError,
        NameServerError,
        NoRouteError,
        RefusedError,
        SendError,
        UnreachableError,
    )
    channel_errors = virtual.Transport.channel_errors + (TransportError,)
    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset(("direct", "topic", "fanout"))
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        """Opens nothing yet."""
        super().__init__(client, **kwargs)
        # What the loop has for the consumers of this connection.
        self.inbox: queue.SimpleQueue[tuple[QueueConsumer, Got]] = queue.SimpleQueue()
        self._settings: Settings | None = None
        self._station: OpenStation | None = None

    @property
    def station(self) -> OpenStation:
        """What this connection stands on.

        Raises:
            ClosedError: it is not established.
        """
        if self._station is None:
            raise ClosedError("this connection is not open")
        return self._station

    @property
    def worker_deaths_max(self) -> int:
        """A task with which so many workers ended is given to no other; 0 for any number."""
        return 0 if self._settings is None else self._settings.worker_deaths_max

    def driver_version(self) -> str:
        """Returns the version of this package."""
        return __version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Returns the URL for people, without the secret key."""
        if include_password:
            return uri
        for secret in _SECRETS:
            uri = secret.sub(lambda found: found.group(1) + mask, uri)
        return uri

    def establish_connection(self) -> "Transport":
        """Connects to the name servers; also the first channel is made."""
        if self._station is None:
            url = self.client.hostname or ""
            if "://" not in url:
                url = f"{SCHEME}://{url}"
            self._settings = read_settings(url, self.client.transport_options)
            self._station = _stations.enter(self._settings)
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        """Closes all channels; what is not acknowledged is given back."""
        super().close_connection(connection)
        station, self._station = self._station, None
        if station is not None and self._settings is not None:
            _stations.leave(self._settings, station)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Waits for a message and delivers it.

        Raises:
            TimeoutError: none came in time.
        """
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            try:
                if left_s is not None and left_s <= 0:
                    consumer, got = self.inbox.get_nowait()
                else:
                    consumer, got = self.inbox.get(timeout=left_s)
            except queue.Empty:
                raise TimeoutError from None
            if consumer.channel.deliver(consumer, got):
                return

    def withdraw(self) -> None:
        """Gives back what waits for consumers that were cancelled."""
        kept = []
        try:
            while True:
                consumer, got = self.inbox.get_nowait()
                if not consumer.is_cancelled:
                    kept.append((consumer, got))
                else:
                    consumer.channel.deliver(consumer, got)
        except queue.Empty:
            for item in kept:
                self.inbox.put(item)


TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
