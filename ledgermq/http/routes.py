"""Routes: method and path -> view."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from ledgermq.http.replies import Reply, RequestError
from ledgermq.http.requests import Request

View = Callable[[Request], Reply | Awaitable[Reply]]

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


class _Place:
    """What stands behind one part of a path."""

    __slots__ = ("named", "parts", "rest_views", "views")

    def __init__(self) -> None:
        self.parts: dict[str, _Place] = {}
        # Behind a part that may be anything.
        self.named: _Place | None = None
        # By method: names of the parts that may be anything, and the view.
        self.views: dict[str, tuple[tuple[str, ...], View]] = {}
        self.rest_views: dict[str, tuple[tuple[str, ...], View]] = {}


class Routes:
    """A table of views.

    A part `{name}` of a pattern stands for one part of the path, `{name*}` at its end for all that
    follows, slashes between. A part that is spelled out goes before one that may be anything.
    """

    def __init__(self) -> None:
        self._root = _Place()
        self.patterns: list[tuple[str, str]] = []

    def add(self, method: str, pattern: str, view: View) -> None:
        """Adds a view; GET serves HEAD, too. A second one for the same place is a fault of ours."""
        assert method in _METHODS, method
        assert pattern.startswith("/"), pattern
        place, names, takes_rest = self._root, [], False
        for part in pattern[1:].split("/") if pattern != "/" else ():
            assert not takes_rest, pattern
            if part.startswith("{"):
                takes_rest = part.endswith("*}")
                names.append(part.strip("{*}"))
                if not takes_rest:
                    place.named = place.named or _Place()
                    place = place.named
            else:
                place = place.parts.setdefault(part, _Place())
        views = place.rest_views if takes_rest else place.views
        assert method not in views, f"{method} {pattern} twice"
        views[method] = (tuple(names), view)
        self.patterns.append((method, pattern))

    def find(self, request: Request) -> tuple[View, Request]:
        """Returns the view and the request with its params.

        Raises:
            RequestError: 404 nothing is there, 405 another method would have been right.
        """
        method = "GET" if request.method == "HEAD" else request.method
        views, values = self._views_at(self._root, request.segments, ())
        if not views:
            raise RequestError(404, "there is nothing here", field="path", value=request.path)
        if method not in views:
            allowed = sorted(views) + (["HEAD"] if "GET" in views else [])
            raise RequestError(
                405,
                f"{request.path} is asked by {' or '.join(allowed)}",
                field="method",
                value=request.method,
                limit=allowed,
                headers=(("Allow", ", ".join(allowed)),),
            )
        names, view = views[method]
        return view, replace(request, params=dict(zip(names, values, strict=True)))

    def _views_at(
        self, place: _Place, segments: tuple[str, ...], values: tuple[str, ...]
    ) -> tuple[dict[str, tuple[tuple[str, ...], View]], tuple[str, ...]]:
        """Follows the path part by part; as deep as patterns are, however long the path is."""
        if not segments:
            return place.views, values
        first, rest = segments[0], segments[1:]
        if first in place.parts:
            found = self._views_at(place.parts[first], rest, values)
            if found[0]:
                return found
        if place.named is not None and first:
            found = self._views_at(place.named, rest, (*values, first))
            if found[0]:
                return found
        return place.rest_views, (*values, "/".join(segments))
