"""Searches: messages that are looked for, a slice at a time, within a budget, until stopped.

One pull is under way at a time, and a pause follows that is several times as long: others meet a
search so seldom that the slowest of their requests stay as quick as they were.
"""

import asyncio
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from twisted.logger import Logger

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.bodies import Bodies
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.messages import (
    find_by_id,
    find_by_key,
    find_message,
    properties_of,
    pull,
    row_of,
)
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import FAILURES, Tally, reason_of
from ledgermq.console.topic_figures import queue_ends
from ledgermq.console.turns import Turns
from ledgermq.http.replies import RequestError
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import SearchOffsetRequestHeader, SearchOffsetResponseHeader

_RUNNING_MAX: Final = 8
_OF_OWNER_MAX: Final = 4
_KEPT_MAX: Final = 50
_SCANS_MAX: Final = 4
_SCANS_OF_ACCOUNT_MAX: Final = 1
_TIME_MAX: Final = 2**63 - 1
# So many messages a pull takes: who comes while a broker serves it waits for tens of microseconds.
_PULL_COUNT: Final = 32
# The pause behind a pull and what was made of it: so many times as long, and at least so long.
_PAUSE_TIMES: Final = 19.0
_PAUSE_MIN_S: Final = 0.001
# Who began it has gone, when nobody has looked how far it is for so long.
_UNSEEN_S: Final = 150.0

State = Literal["running", "done", "full", "budget", "stopped", "failed"]
_log = Logger()


@dataclass(slots=True, kw_only=True)
class _Search:
    id: str
    session: str
    # In whose quota it counts: an account, or a session without one.
    owner: str
    cluster: str
    wanted: shapes.SearchRequest
    begun_s: float
    # When somebody looked at it last.
    seen_s: float
    state: State = "running"
    reason: str = ""
    scanned: int = 0
    total: int = 0
    took_ms: int = 0
    rows: list[shapes.MessageRow] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    task: "asyncio.Task[None] | None" = None


class Searches:
    """All searches of a console."""

    def __init__(self) -> None:
        # By id, the oldest first.
        self._searches: dict[str, _Search] = {}
        # For all who look into bodies, searches among them.
        self.bodies = Bodies()
        # For whoever has a queue read to its end before a change.
        self.scans = Turns(_SCANS_MAX, _SCANS_OF_ACCOUNT_MAX)

    def start(
        self, view: ClusterView, session: str, account: str, wanted: shapes.SearchRequest
    ) -> shapes.Search:
        """Begins a search.

        Raises:
            RequestError: it does not say enough, or too many run.
        """
        _check(wanted)
        running = [one for one in self._searches.values() if one.state == "running"]
        owner = account or session
        mine = sum(one.owner == owner for one in running)
        if len(running) >= _RUNNING_MAX or mine >= _OF_OWNER_MAX:
            limit = _OF_OWNER_MAX if mine >= _OF_OWNER_MAX else _RUNNING_MAX
            raise RequestError(429, f"{limit} searches run already; stop one", limit=limit)
        ended = [one for one in self._searches.values() if one.state != "running"]
        for _ in range(len(ended) - _KEPT_MAX + 1):
            # Of who has most: nobody throws away what others found.
            most, _ = Counter(one.owner for one in ended).most_common(1)[0]
            oldest = next(one for one in ended if one.owner == most)
            ended.remove(oldest)
            del self._searches[oldest.id]
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        search = _Search(
            id=secrets.token_urlsafe(12),
            session=session,
            owner=owner,
            cluster=view.id,
            wanted=wanted,
            begun_s=now_s,
            seen_s=now_s,
        )
        self._searches[search.id] = search
        search.task = loop.create_task(self._run(view, search))
        return _shape(search, 0)

    def look(self, cluster: str, session: str, search_id: str, after: int) -> shapes.Search:
        """Returns how far a search is.

        Raises:
            RequestError: there is none of that id in this session.
        """
        search = self._find(cluster, session, search_id)
        search.seen_s = asyncio.get_running_loop().time()
        return _shape(search, after)

    def stop(self, cluster: str, session: str, search_id: str) -> shapes.Search:
        """Ends a search; what it found stays."""
        search = self._find(cluster, session, search_id)
        if search.state == "running" and search.task is not None:
            search.state, search.reason = "stopped", "stopped"
            search.task.cancel()
        return _shape(search, 0)

    def stop_all(self, session: str | None = None) -> None:
        """Ends the searches of a session, or all, and forgets them."""
        for search in list(self._searches.values()):
            if session in (None, search.session):
                if search.task is not None:
                    search.task.cancel()
                del self._searches[search.id]

    def _find(self, cluster: str, session: str, search_id: str) -> _Search:
        search = self._searches.get(search_id)
        if search is None or (search.cluster, search.session) != (cluster, session):
            message = f"there is no search {search_id!r}"
            raise RequestError(404, message, field="search", value=search_id)
        return search

    async def _run(self, view: ClusterView, search: _Search) -> None:
        try:
            async with asyncio.timeout(search.wanted.seconds_max):
                search.state = await _look_for(view, self.bodies, search)
        except TimeoutError:
            search.state = "budget"
            search.reason = f"{search.wanted.seconds_max:g} s are over (seconds_max)"
        except RequestError as error:
            is_none = error.status == 404
            search.state = "done" if is_none else "failed"
            search.reason = error.message
        except FAILURES as error:
            search.state, search.reason = "failed", reason_of(error)
        except asyncio.CancelledError:
            search.state = "stopped"
        except Exception:
            _log.failure("a search broke off")
            search.state = "failed"
            search.reason = "a fault of this program; its log says more"
        finally:
            took_s = asyncio.get_running_loop().time() - search.begun_s
            search.took_ms = int(took_s * 1000)


def _check(wanted: shapes.SearchRequest) -> None:
    if not wanted.topic and not wanted.offset_id:
        raise RequestError(400, "give a topic, or an id that tells a place", field="topic")
    if wanted.at_offset is not None and (not wanted.broker or wanted.queue is None):
        raise RequestError(400, "an offset takes a broker and a queue", field="at_offset")
    if wanted.tag and wanted.sql:
        raise RequestError(400, "give a tag or SQL, not both", field="sql")


def _shape(search: _Search, after: int) -> shapes.Search:
    took_ms = search.took_ms
    if search.state == "running":
        took_ms = int((asyncio.get_running_loop().time() - search.begun_s) * 1000)
    return shapes.Search(
        id=search.id,
        state=search.state,
        reason=search.reason,
        scanned=search.scanned,
        total=search.total,
        found=len(search.rows),
        took_ms=took_ms,
        rows=search.rows[after:],
        answers=search.tally.answers(),
    )


async def _look_for(view: ClusterView, bodies: Bodies, search: _Search) -> State:
    wanted = search.wanted
    if wanted.offset_id:
        found = [await find_by_id(view, wanted.offset_id)]
    elif wanted.unique_key or wanted.key:
        brokers = sorted((await view.topics()).by_name.get(wanted.topic, {}))
        found = await find_by_key(
            view,
            search.tally,
            await view.leaders(search.tally, brokers) if brokers else [],
            wanted.topic,
            wanted.unique_key or wanted.key,
            is_unique=bool(wanted.unique_key),
            begin_ms=wanted.begin_ms or 0,
            end_ms=_TIME_MAX if wanted.end_ms is None else wanted.end_ms,
        )
    elif wanted.at_offset is not None:
        assert wanted.queue is not None
        place = (wanted.topic, wanted.broker, wanted.queue, wanted.at_offset)
        found = [await find_message(view, *place)]
    else:
        return await _scan(view, bodies, search)
    search.total = search.scanned = len(found)
    fitting = [one for one in found if await _fits(bodies, one, search)]
    search.rows = [row_of(one) for one in fitting[: wanted.found_max]]
    return "done"


async def _scan(view: ClusterView, bodies: Bodies, search: _Search) -> State:
    """Reads the queues of a topic, one after the other."""
    wanted = search.wanted
    entries = (await view.topics()).by_name.get(wanted.topic)
    if not entries:
        raise RequestError(404, f"there is no topic {wanted.topic!r}", field="topic")
    targets = [
        target
        for target in await view.leaders(search.tally, sorted(entries))
        if wanted.broker in ("", target.name)
    ]
    ranges = await _ranges(view, search, targets)
    search.total = sum(end - begin for _, _, begin, end in ranges)
    for target, queue, begin, end in ranges:
        state = await _scan_queue(view, bodies, search, target, queue, begin, end)
        if state is not None:
            return state
    return "done"


async def _ranges(
    view: ClusterView, search: _Search, targets: list[Target]
) -> list[tuple[Target, MessageQueue, int, int]]:
    wanted, found = search.wanted, []
    addresses = {target.name: target for target in targets}
    ends = await queue_ends(view, search.tally, targets, wanted.topic)
    for queue, its_ends in sorted(ends.items()):
        target = addresses[queue.broker_name]
        if wanted.queue not in (None, queue.queue_id):
            continue
        begin, end = its_ends.min_offset, its_ends.max_offset
        if begin < end and wanted.begin_ms is not None:
            begin = max(begin, await _offset_at(view, target, queue, wanted.begin_ms))
        if begin < end and wanted.end_ms is not None:
            # Of one time there may be several: the rest is judged one by one.
            end = min(end, await _offset_at(view, target, queue, wanted.end_ms) + 1)
        if begin < end:
            found.append((target, queue, begin, end))
    return found


async def _offset_at(view: ClusterView, target: Target, queue: MessageQueue, moment_ms: int) -> int:
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=moment_ms
    )
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answer = await view.remote.call(target.address, code, header)
    return max(answer.header(SearchOffsetResponseHeader).offset, 0)


async def _scan_queue(
    view: ClusterView,
    bodies: Bodies,
    search: _Search,
    target: Target,
    queue: MessageQueue,
    begin: int,
    end: int,
) -> State | None:
    """Reads one queue; returns why the search is over, None to go on with the next."""
    wanted = search.wanted
    expression, kind = (wanted.sql, "SQL92") if wanted.sql else (wanted.tag or "*", "TAG")
    offset = begin
    while offset < end:
        if search.scanned >= wanted.scan_max:
            search.reason = f"{search.scanned} messages were looked at (scan_max)"
            return "budget"
        begun_s = asyncio.get_running_loop().time()
        if begun_s - search.seen_s > _UNSEEN_S:
            search.reason = f"nobody has looked at it for {_UNSEEN_S:g} s"
            return "stopped"
        try:
            pulled = await pull(view, target.address, queue, offset, _PULL_COUNT, expression, kind)
        except FAILURES as error:
            search.tally.failed(target.name, target.address, error)
            return None
        for message in pulled.messages:
            await asyncio.sleep(0)
            if message.queue_offset < end and await _fits(bodies, message, search):
                search.rows.append(row_of(message))
                if len(search.rows) >= wanted.found_max:
                    search.scanned += message.queue_offset + 1 - offset
                    return "full"
        if pulled.next_offset <= offset:
            return None
        search.scanned += min(pulled.next_offset, end) - offset
        offset = pulled.next_offset
        took_s = asyncio.get_running_loop().time() - begun_s
        await asyncio.sleep(max(took_s * _PAUSE_TIMES, _PAUSE_MIN_S))
    return None


async def _fits(bodies: Bodies, message: ReceivedMessage, search: _Search) -> bool:
    """Tells whether a message has all that is wanted; SQL is judged by brokers alone."""
    wanted = search.wanted
    if wanted.topic and message.record.topic != wanted.topic:
        return False
    stored_ms = message.store_timestamp_ms
    if wanted.begin_ms is not None and stored_ms < wanted.begin_ms:
        return False
    if wanted.end_ms is not None and stored_ms >= wanted.end_ms:
        return False
    if wanted.tag and properties_of(message)[0].get(names.TAGS) != wanted.tag:
        return False
    return not wanted.text or await bodies.has_text(search.owner, message, wanted.text)
