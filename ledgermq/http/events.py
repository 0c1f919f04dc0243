"""EventHub: server-sent events for some viewers, each event encoded once.

    id: 17
    event: topics
    data: {"changed":["TopicA"]}

A viewer that does not read is dropped by its outlet, and comes back by itself (`retry`) with a
fresh view; so nothing is kept for it. A comment now and then keeps proxies from closing the stream.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from ledgermq.http.replies import Outlet, Reply, RequestError

_RETRY_MS: Final = 3000
_BEAT_S: Final = 15.0


class EventHub:
    """The streams of one port; reactor thread only."""

    def __init__(self, reactor: Any, *, viewers_max: int = 64) -> None:
        """
        Args:
            reactor: gives time.
            viewers_max: open streams at a time.
        """
        self._reactor, self._viewers_max = reactor, viewers_max
        self._viewers: set[_Viewer] = set()
        self._last_id = 0
        self._beat: Any = None

    @property
    def viewer_count(self) -> int:
        """How many streams are open."""
        return len(self._viewers)

    @property
    def names(self) -> frozenset[str]:
        """Names of events that some viewer wants; so nothing else has to be found out."""
        return frozenset(name for viewer in self._viewers for name in viewer.names)

    def stream(
        self,
        names: Collection[str],
        *,
        first: Sequence[tuple[str, object]] = (),
        on_closed: Callable[[], None] | None = None,
    ) -> Reply:
        """Returns a stream of events as a reply.

        Args:
            names: of the events that are sent to this viewer.
            first: events, name and value, that it gets at once.
            on_closed: called when the viewer is gone.

        Raises:
            RequestError: there are too many viewers.
        """
        if len(self._viewers) >= self._viewers_max:
            limit = self._viewers_max
            message = f"{limit} streams of events are open; close another page"
            raise RequestError(503, message, field="viewers", value=limit, limit=limit)
        opening = f"retry: {_RETRY_MS}\n\n".encode() + b"".join(
            self._encode(name, value) for name, value in first
        )
        return Reply(
            body=_Viewer(self, frozenset(names), opening, on_closed),
            content_type="text/event-stream; charset=utf-8",
            headers=(("X-Accel-Buffering", "no"),),
        )

    def publish(self, name: str, value: object) -> int:
        """Sends an event to all who want it; returns how many that are.

        Args:
            name: of one line.
            value: as msgspec writes it.
        """
        viewers = [viewer for viewer in self._viewers if name in viewer.names]
        if viewers:
            self._write(viewers, self._encode(name, value))
        return len(viewers)

    def close(self) -> None:
        """Ends all streams."""
        for viewer in list(self._viewers):
            viewer.end()

    def _encode(self, name: str, value: object) -> bytes:
        assert "\n" not in name and "\r" not in name
        self._last_id += 1
        head = f"id: {self._last_id}\nevent: {name}\ndata: ".encode()
        # JSON has no line breaks outside of strings, and in strings they are escaped.
        return head + msgspec.json.encode(value) + b"\n\n"

    def _write(self, viewers: Sequence["_Viewer"], data: bytes) -> None:
        for viewer in viewers:
            viewer.write(data)

    def _look(self) -> None:
        self._beat = None
        self._write(list(self._viewers), b":\n\n")
        self._arm()

    def _arm(self) -> None:
        if self._viewers and self._beat is None:
            self._beat = self._reactor.callLater(_BEAT_S, self._look)
        elif not self._viewers and self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def joined(self, viewer: "_Viewer") -> None:
        """Counts a viewer whose stream is open."""
        self._viewers.add(viewer)
        self._arm()

    def left(self, viewer: "_Viewer") -> None:
        """Forgets a viewer."""
        self._viewers.discard(viewer)
        self._arm()


class _Viewer:
    """One open stream."""

    __slots__ = ("_hub", "_on_closed", "_opening", "_outlet", "names")

    def __init__(
        self,
        hub: EventHub,
        names: frozenset[str],
        opening: bytes,
        on_closed: Callable[[], None] | None,
    ) -> None:
        self._hub, self.names, self._opening = hub, names, opening
        self._on_closed = on_closed
        self._outlet: Outlet | None = None

    def opened(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._hub.joined(self)
        outlet.write(self._opening)

    def write(self, data: bytes) -> None:
        if self._outlet is not None:
            self._outlet.write(data)

    def end(self) -> None:
        if self._outlet is not None:
            self._outlet.close()

    def closed(self) -> None:
        self._outlet = None
        self._hub.left(self)
        if self._on_closed is not None:
            self._on_closed()
