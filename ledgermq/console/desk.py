"""Desk: takes each request of the API: who asks, may he, what exactly; then its handler answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from ledgermq.client.errors import ClientError, RefusedError
from ledgermq.console import openapi
from ledgermq.console.absent import missing
from ledgermq.console.actions.register import Register
from ledgermq.console.api.brokers import get_broker_groups
from ledgermq.console.api.messages import get_body
from ledgermq.console.api.overview import get_overview
from ledgermq.console.api.table import HANDLERS
from ledgermq.console.audit import Audit, Outcome
from ledgermq.console.call import Call, Terms
from ledgermq.console.identity import Sight
from ledgermq.console.plain import describe, describe_silent
from ledgermq.console.routes import API, ROUTES, Gives, Leave, Route
from ledgermq.console.searches import Searches
from ledgermq.console.sessions import COOKIE, Session, Sessions, is_token
from ledgermq.console.shapes.brokers import AuditEntry
from ledgermq.console.shapes.elements import Shape
from ledgermq.console.shapes.session import SignIn
from ledgermq.console.stream import TabStreams
from ledgermq.console.tally import reason_of
from ledgermq.console.turns import Turns
from ledgermq.http.replies import JSON_TYPE, Reply, RequestError, json_reply
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.errors import ProtocolError

_CSRF_HEADER: Final = "x-csrf-token"
# Of who is not known yet.
_SIGN_IN_BYTES_MAX: Final = 65_536
# Requests that read messages with their bodies, 16 MiB each, at the same time.
_READERS_MAX: Final = 8
_READERS_OF_ACCOUNT_MAX: Final = 4
# Show what the console has, beside what is of a cluster.
_OF_CONSOLE: Final = frozenset({"get_log", "get_audit"})
_BROKEN_OFF: Final = "who tried went away before an answer came"
_NUMBERED: Final = {
    int(ResponseCode.NO_PERMISSION): 403,
    int(ResponseCode.TOPIC_NOT_EXIST): 404,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): 404,
}


_View = Callable[[Request], Awaitable[Reply]]


class Desk:
    """The API of one console."""

    def __init__(
        self,
        sessions: Sessions,
        audit: Audit,
        terms: Terms,
        streams: TabStreams,
        now_ms: Callable[[], int],
    ) -> None:
        self.sessions, self.audit, self.terms = sessions, audit, terms
        self._streams, self._now_ms = streams, now_ms
        self.changes = Register(audit, now_ms)
        self.searches = Searches()
        self.reading = Turns(_READERS_MAX, _READERS_OF_ACCOUNT_MAX)
        sessions.on_end(self.changes.stop_all)
        sessions.on_end(self.searches.stop_all)
        self._own: Mapping[str, Callable[[Request], Awaitable[Reply]]] = {
            "get_session": self._get_session,
            "sign_in": self._sign_in,
            "sign_out": self._sign_out,
            "get_clusters": self._get_clusters,
        }

    def add_to(self, routes: Routes) -> None:
        """Adds the addresses of the API."""
        for route in ROUTES:
            routes.add(route.method, route.path, self._view(route))
        document = openapi.encoded()
        routes.add(
            "GET", f"{API}/openapi.json", lambda _: Reply(body=document, content_type=JSON_TYPE)
        )
        routes.add("GET", "/overview.txt", self._telling(self._plain_overview))

    def _view(self, route: Route) -> _View:
        own = self._own.get(route.name)

        return self._telling(own or partial(self._serve, route))

    @staticmethod
    def _telling(serve: _View) -> _View:
        async def view(request: Request) -> Reply:
            try:
                return await serve(request)
            except (ClientError, ProtocolError) as error:
                raise told(error) from error

        return view

    # Sessions.

    async def _get_session(self, request: Request) -> Reply:
        session = await self.sessions.find(request.cookie(COOKIE))
        needed = await self.sessions.needs_account()
        return json_reply(self.sessions.shape(session, needed=needed))

    async def _sign_in(self, request: Request) -> Reply:
        if len(request.body) > _SIGN_IN_BYTES_MAX:
            message = f"this has {len(request.body)} bytes, {_SIGN_IN_BYTES_MAX} are allowed"
            raise RequestError(413, message, limit=_SIGN_IN_BYTES_MAX)
        wanted = request.json(SignIn)
        try:
            session = await self.sessions.sign_in(wanted, request.peer_host)
        except RequestError as error:
            # A try too many was none; as lines they would drive out what others did.
            if error.status != 429:
                self._note("sign_in", wanted.access_key, request, "refused", error.message)
            raise
        except (ClientError, ProtocolError) as error:
            self._note("sign_in", wanted.access_key, request, "refused", reason_of(error))
            raise
        except asyncio.CancelledError:
            self._note("sign_in", wanted.access_key, request, "refused", _BROKEN_OFF)
            raise
        self._note("sign_in", wanted.access_key, request, "done", session.role, session.is_admin)
        cookie = f"{COOKIE}={session.id}; HttpOnly; SameSite=Strict; Path=/"
        cookie += "; Secure" if request.is_secure else ""
        shape = self.sessions.shape(session, needed=True)
        return json_reply(shape, headers=(("Set-Cookie", cookie),))

    async def _sign_out(self, request: Request) -> Reply:
        session = await self.sessions.find(request.cookie(COOKIE))
        if session is not None:
            _check_token(session, request)
            if session.account is not None:
                self._note("sign_out", session.account, request, "done", "", session.is_admin)
            await self.sessions.end(session)
        needed = await self.sessions.needs_account()
        now = await self.sessions.find(None)
        cookie = f"{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"
        shape = self.sessions.shape(now, needed=needed)
        return json_reply(shape, headers=(("Set-Cookie", cookie),))

    def _note(
        self,
        action: str,
        account: str,
        request: Request,
        outcome: Outcome,
        detail: str,
        is_admin: bool = False,
    ) -> None:
        self.audit.add(
            AuditEntry(
                at_ms=self._now_ms(),
                account=account,
                address=request.peer_host,
                cluster="",
                action=action,
                object="",
                outcome=outcome,
                detail=detail,
                action_id="",
            ),
            is_admin=is_admin,
        )

    async def _get_clusters(self, request: Request) -> Reply:
        return json_reply(await (await self._reader(request)).identity.clusters())

    async def _reader(self, request: Request) -> Session:
        session = await self.sessions.find(request.cookie(COOKIE))
        if session is None:
            raise RequestError(401, "sign in first")
        return session

    # All else.

    async def _serve(self, route: Route, request: Request) -> Reply:
        session = await self._reader(request)
        if request.method not in ("GET", "HEAD"):
            _check_token(session, request)
        if route.leave is Leave.CHANGER and not session.may_change:
            raise RequestError(403, "this session may look and change nothing")
        sight = await self.sessions.enter(session, request.params["cluster"])
        if sight is None:
            raise missing("cluster", request.params["cluster"])
        call = self._call(session, sight, request)._replace(
            query=None if route.query is None else read_query(route.query, request.query),
            body=None if route.body is None else request.json(route.body),
        )
        if route.name in _OF_CONSOLE:
            call = call._replace(sees_console=await self.sessions.is_admin_everywhere(session))
        if route.gives is Gives.EVENTS:
            return self._streams.open(call, self._renewed(session))
        if route.gives is Gives.BYTES:
            return _file(await get_body(call), call)
        handler = HANDLERS.get(route.name)
        if handler is None:
            raise RequestError(501, f"{route.name} is not there yet", code="not_implemented")
        return json_reply(await handler(call))

    def _call(self, session: Session, sight: Sight, request: Request) -> Call:
        return Call(
            cluster=sight.view,
            sampler=sight.sampler,
            terms=self.terms,
            audit=self.audit,
            changes=self.changes,
            searches=self.searches,
            reading=self.reading,
            path=dict(request.params),
            query=None,
            body=None,
            session=session.id,
            account=session.account or "",
            peer=request.peer_host,
            now_ms=self._now_ms(),
            sees_all=session.is_admin_at(session.identity.remotes.index(sight.view.remote)),
            has_other_sets=len(session.identity.remotes) > 1,
        )

    async def _plain_overview(self, request: Request) -> Reply:
        """For browsers without scripts, and for a shell: how each cluster is."""
        session = await self._reader(request)
        clusters = await session.identity.clusters()
        told = [describe_silent(clusters.answers)]
        for one in clusters.clusters:
            try:
                sight = await self.sessions.enter(session, one.id)
            except RequestError as error:
                told.append(f"{one.id}: {error.message}\n")
                continue
            if sight is not None:
                call = self._call(session, sight, request)
                told.append(describe(await get_overview(call), await get_broker_groups(call)))
        text = "\n".join(filter(None, told)) or "no cluster\n"
        return Reply(body=text.encode(errors="replace"), content_type="text/plain; charset=utf-8")

    def _renewed(self, session: Session) -> Callable[[Call], Awaitable[Call | None]]:
        """Returns what makes the next call of a stream; None when its session has ended."""

        async def renew(call: Call) -> Call | None:
            # A stream that goes on is no sign that somebody is there.
            if not await self.sessions.goes_on(session):
                return None
            return call._replace(now_ms=self._now_ms())

        return renew


def _check_token(session: Session, request: Request) -> None:
    if not is_token(session, request.headers.get(_CSRF_HEADER, "")):
        raise RequestError(
            403, "the header X-CSRF-Token is not that of this session", field="X-CSRF-Token"
        )


def _file(body: bytes, call: Call) -> Reply:
    """A file to save: nothing of it is shown by the browser, whatever it is."""
    name = f"{call.path['queue']}-{call.path['offset']}.bin"
    return Reply(
        body=body,
        content_type=Gives.BYTES.value,
        headers=(("Content-Disposition", f'attachment; filename="{name}"'),),
    )


def read_query(kind: type[Shape], given: Mapping[str, list[str]]) -> Shape:
    """Reads the query of an address.

    Raises:
        RequestError: a field is unknown, comes twice, or has no value that is allowed.
    """
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if name not in known:
            limit = sorted(known)
            message = f"there is no field {name!r}"
            raise RequestError(400, message, field=name, value=texts[0], limit=limit)
        if len(texts) != 1:
            raise RequestError(400, f"{name} comes {len(texts)} times", field=name, limit=1)
        values[name] = texts[0]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`")
        raise RequestError(400, message, field=name, value=values.get(name)) from None


def told(error: ClientError | ProtocolError) -> RequestError:
    """Returns how the failure of a question to a server is told."""
    if isinstance(error, RefusedError):
        status = _NUMBERED.get(error.code or 0, 502)
        code = {403: "forbidden", 404: "not_found"}.get(status, "refused")
        return RequestError(status, reason_of(error), code=code, field="broker", value=error.broker)
    if isinstance(error, ClientError):
        return RequestError(502, error.what, code="unreachable", field="broker", value=error.broker)
    return RequestError(502, f"a server answered what cannot be read: {error}", code="unreadable")
