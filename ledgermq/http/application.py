"""Application: from a request to its reply, without a socket."""

import inspect
from collections.abc import Awaitable, Callable, Sequence

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ledgermq.http.replies import Reply, RequestError
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes
from ledgermq.http.security import secured

# Raises RequestError for what may not be asked.
Guard = Callable[[Request], None]

_log = Logger()


class Application:
    """Routes behind guards; whatever goes wrong becomes a reply."""

    def __init__(self, routes: Routes, guards: Sequence[Guard] = ()) -> None:
        """
        Args:
            routes: may still grow.
            guards: asked in this order before any view.
        """
        self._routes, self._guards = routes, guards

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        """Returns the reply, or an awaitable of it where the view gives one; neither raises."""
        try:
            for guard in self._guards:
                guard(request)
            view, request = self._routes.find(request)
            reply = view(request)
        except Exception as error:
            return refusal(error, request)
        return self._later(reply, request) if inspect.isawaitable(reply) else _checked(reply)

    async def _later(self, reply: Awaitable[Reply], request: Request) -> Reply:
        try:
            return _checked(await reply)
        except Exception as error:
            return refusal(error, request)


def refusal(error: Exception, request: Request) -> Reply:
    """Returns what is told of an error: all of a refusal, nothing of a fault, which is logged."""
    if isinstance(error, CancelledError | TimeoutError):
        error = RequestError(503, "no answer in time")
    elif not isinstance(error, RequestError):
        # %r: whoever asked must not write lines of the log.
        _log.failure("{method} {path}", method=request.method, path=repr(request.path))
        error = RequestError(500, "a fault of this program; its log says more")
    return secured(error.reply())


def _checked(reply: Reply | Awaitable[Reply]) -> Reply:
    assert isinstance(reply, Reply)
    return secured(reply)
