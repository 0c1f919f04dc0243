"""TabStreams: one stream of events for each tab, by which its parts stay fresh.

Each stream asks for its parts at its own pace; what several streams show is loaded once, because
clusters keep what they loaded for a moment. A part that is as it was is not sent again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl
from weakref import WeakSet

import msgspec
from twisted.logger import Logger

from ledgermq.client.errors import ClientError
from ledgermq.console.api.brokers import get_broker_groups
from ledgermq.console.api.groups import get_consumer_group, get_consumer_groups
from ledgermq.console.api.overview import get_history, get_overview
from ledgermq.console.api.topics import get_topics
from ledgermq.console.call import Call, Handler, words_of
from ledgermq.console.shapes.brokers import HistoryQuery
from ledgermq.console.shapes.elements import Nothing, Shape
from ledgermq.console.shapes.events import StreamQuery
from ledgermq.console.shapes.groups import GroupsQuery
from ledgermq.console.shapes.topics import TopicsQuery
from ledgermq.console.tally import FAILURES, reason_of
from ledgermq.http.replies import Outlet, Reply, RequestError
from ledgermq.protocol.errors import ProtocolError

_log = Logger()
_STREAMS_MAX: Final = 64
# Of one account, whatever its sessions: a quarter, so that one cannot shut out the others.
_ACCOUNT_STREAMS_MAX: Final = 16
_RETRY_MS: Final = 3_000
# A comment keeps proxies from closing the stream.
_BEAT_S: Final = 15.0
_HISTORY_SPAN_S: Final = 30

# What reads the query of a list that is shown.
ReadQuery = Callable[[type[Shape], Mapping[str, list[str]]], Shape]
Renew = Callable[[Call], Awaitable[Call | None]]

_PARTS: Final[Mapping[str, tuple[Handler, type[Shape] | None]]] = {
    "overview": (get_overview, None),
    "broker_groups": (get_broker_groups, None),
    "topics": (get_topics, TopicsQuery),
    "consumer_groups": (get_consumer_groups, GroupsQuery),
    "consumer_group": (get_consumer_group, None),
    "history": (get_history, None),
}


class TabStreams:
    """All streams of a console."""

    def __init__(self, read_query: ReadQuery) -> None:
        self._read_query = read_query
        # From when they are made, so that what is asked for at once is counted. One whose reply is
        # never written, as its viewer has gone, is held by nobody.
        self._streams: WeakSet[_TabStream] = WeakSet()

    def open(self, call: Call, renew: Renew) -> Reply:
        """Returns a stream as a reply.

        Args:
            call: with the query of the stream.
            renew: makes the call of each turn; gives None when the session has ended.

        Raises:
            RequestError: a part is unknown, or there are too many streams.
        """
        query = call.asks(StreamQuery)
        names = words_of(query.parts, "parts", _PARTS)
        self._check_room(call.account)
        parts = {name: (_PARTS[name][0], self._call(name, call, query)) for name in sorted(names)}
        stream = _TabStream(self._streams, call.account, parts, renew, query.every_s)
        return Reply(
            body=stream,
            content_type="text/event-stream; charset=utf-8",
            headers=(("X-Accel-Buffering", "no"),),
        )

    def _check_room(self, account: str) -> None:
        """Where nobody signs in, all share the whole: nothing tells them apart behind a proxy."""
        count = len(self._streams)
        if count >= _STREAMS_MAX:
            message = f"{count} streams of events are open; close another page"
            raise RequestError(503, message, field="streams", value=count, limit=_STREAMS_MAX)
        own = sum(stream.account == account for stream in self._streams)
        if account and own >= _ACCOUNT_STREAMS_MAX:
            message = f"{own} streams of events are open for this account; close another page"
            raise RequestError(503, message, field="streams", value=own, limit=_ACCOUNT_STREAMS_MAX)

    def close(self) -> None:
        """Ends all streams."""
        for stream in list(self._streams):
            stream.end()

    def _call(self, name: str, call: Call, query: StreamQuery) -> Call:
        kind = _PARTS[name][1]
        if kind is not None:
            text = query.topics if name == "topics" else query.consumer_groups
            given = {key: [value] for key, value in parse_qsl(text, keep_blank_values=True)}
            return call._replace(query=self._read_query(kind, given))
        if name == "consumer_group":
            return call._replace(path=call.path | {"group": query.consumer_group})
        return call._replace(query=HistoryQuery(span_s=_HISTORY_SPAN_S))


class _Problem(Shape, frozen=True, kw_only=True):
    """Why a part has no news."""

    part: str
    code: str
    message: str


class _TabStream:
    """The stream of one tab."""

    def __init__(
        self,
        streams: "WeakSet[_TabStream]",
        account: str,
        parts: Mapping[str, tuple[Handler, Call]],
        renew: Renew,
        every_s: float,
    ) -> None:
        self._streams, self.account, self._parts = streams, account, parts
        self._renew, self._every_s = renew, every_s
        self._outlet: Outlet | None = None
        self._task: asyncio.Task[None] | None = None
        # What each part was when it was sent last.
        self._sent: dict[str, bytes] = {}
        self._last_id = 0
        streams.add(self)

    def opened(self, outlet: Outlet) -> None:
        """The head is out."""
        self._outlet = outlet
        outlet.write(f"retry: {_RETRY_MS}\n\n".encode())
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def closed(self) -> None:
        """The viewer is gone."""
        self._outlet = None
        self._streams.discard(self)
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Ends the reply."""
        if self._outlet is not None:
            self._outlet.close()

    async def _serve(self) -> None:
        try:
            await self._go_on()
        except Exception:
            # The browser comes back by itself.
            _log.failure("a stream of events broke off")
            self.end()

    async def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        written_s = loop.time()
        while self._outlet is not None:
            begun_s = loop.time()
            found = await asyncio.gather(*(self._value(name) for name in self._parts))
            if any(one is None for one in found):
                self._write("session", Nothing())
                self.end()
                return
            for name, value in zip(self._parts, found, strict=True):
                is_problem = isinstance(value, _Problem)
                if self._write("problem" if is_problem else name, value):
                    written_s = loop.time()
            if loop.time() - written_s >= _BEAT_S and self._outlet is not None:
                self._outlet.write(b":\n\n")
                written_s = loop.time()
            await asyncio.sleep(max(self._every_s - (loop.time() - begun_s), 0.2))

    async def _value(self, name: str) -> Any:
        """Returns a part, or what is wrong with it; None when the session has ended."""
        handler, first = self._parts[name]
        call = await self._renew(first)
        if call is None:
            return None
        try:
            return await handler(call)
        except RequestError as error:
            return _Problem(part=name, code=error.code, message=error.message)
        except FAILURES as error:
            assert isinstance(error, ClientError | ProtocolError)
            return _Problem(part=name, code="unreachable", message=reason_of(error))

    def _write(self, name: str, value: object) -> bool:
        """Sends a part that is not as it was."""
        data = msgspec.json.encode(value)
        if self._sent.get(name) == data or self._outlet is None:
            return False
        self._sent[name] = data
        self._last_id += 1
        head = f"id: {self._last_id}\nevent: {name}\ndata: ".encode()
        # JSON has no line breaks outside of strings, and in strings they are escaped.
        self._outlet.write(head + data + b"\n\n")
        return True
