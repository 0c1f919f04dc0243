"""Asks a console as a browser or a program does, and holds each answer to the shape of its route.

An answer with an unknown field, a missing one or a value of another type fails the test that asked.
"""

import json
import urllib.parse
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Self

import msgspec

from ledgermq.console.routes import ROUTES, Gives, Route
from ledgermq.console.shapes.elements import Refusal
from ledgermq.console.shapes.session import Session
from tests.waiting import wait_until

_ROUTES = {route.name: route for route in ROUTES}
_TIMEOUT_S = 60.0


class Refused(Exception):
    """An answer from 400 on."""

    def __init__(self, status: int, refusal: Refusal, headers: dict[str, str]) -> None:
        super().__init__(f"{status} {refusal.error}")
        self.status, self.error, self.headers = status, refusal.error, headers


class Api:
    """One browser at one console."""

    def __init__(self, url: str, cluster: str = "DefaultCluster") -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self.host, self.port, self.cluster = parts.hostname, parts.port, cluster
        self.cookie, self.token = "", ""
        self.asked: set[str] = set()

    def sign_in(self, access_key: str, secret_key: str) -> Session:
        """Signs in, and keeps cookie and token."""
        session: Session = self.call(
            "sign_in", body={"access_key": access_key, "secret_key": secret_key}
        )
        self.token = session.csrf_token
        return session

    def opened(self) -> Self:
        """Takes the token of the session that is there, and waits until its clusters are known.

        A console may be there before the name server that tells it of them.
        """
        session: Session = self.call("get_session")
        self.token = session.csrf_token
        wait_until(lambda: self.call("get_clusters").clusters, what="a console with a cluster")
        return self

    def call(self, name: str, body: Any = None, *, query: Any = None, **path: Any) -> Any:
        """Asks a route by its name.

        Args:
            name: of the route.
            body: sent as JSON.
            query: fields of the address.
            path: parts of the path.

        Raises:
            Refused: the answer is a refusal.
        """
        route = _ROUTES[name]
        self.asked.add(name)
        status, headers, data = self.raw(route.method, self.target(route, query, path), body)
        if status >= 400:
            refusal = msgspec.json.decode(data, type=Refusal)
            raise Refused(status, refusal, headers)
        assert status == 200, status
        if route.gives is not Gives.JSON:
            return data
        return msgspec.json.decode(data, type=route.answer)

    def target(self, route: Route | str, query: Any, path: dict[str, Any]) -> str:
        """Returns path and query of a route."""
        pattern = route if isinstance(route, str) else route.path
        values = {"cluster": self.cluster, **path}
        for key, value in values.items():
            quoted = urllib.parse.quote(str(value), safe="", errors="surrogatepass")
            pattern = pattern.replace("{" + key + "}", quoted)
        words = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in (query or {}).items()
        }
        return pattern + ("?" + urllib.parse.urlencode(words) if words else "")

    def raw(
        self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Sends a request; returns status, headers in small letters, and body."""
        sent = {"X-CSRF-Token": self.token, "Cookie": self.cookie}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        connection = HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
        try:
            connection.request(
                method, target, data, {key: value for key, value in sent.items() if value}
            )
            answer: HTTPResponse = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            if "set-cookie" in told:
                self.cookie = told["set-cookie"].partition(";")[0]
            return answer.status, told, answer.read()
        finally:
            connection.close()
