"""An application of FastAPI or Starlette that sends in its requests and consumes beside them.

The servers' side of ASGI is played by hand: the messages of a lifespan, and one request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ledgermq.client import (
    ClosedError,
    ConfigError,
    Message,
    Producer,
    ReceivedMessage,
    text_serializer,
)
from ledgermq.client.asgi import Messaging
from tests.scenarios import run, until

STATE = {"asgi": {"version": "3.0", "spec_version": "2.4"}}


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[None]:
    """Starts an application as a server does, and stops it."""
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", **STATE}, told.get, said.put))
    await told.put({"type": "lifespan.startup"})
    started = await said.get()
    if started["type"] != "lifespan.startup.complete":
        with contextlib.suppress(Exception):
            await task
        raise RuntimeError(started["message"])
    yield
    await told.put({"type": "lifespan.shutdown"})
    assert (await said.get())["type"] == "lifespan.shutdown.complete"
    await task


async def post(app: Any, path: str) -> tuple[int, bytes]:
    """Makes a request; status and body of the answer."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http"}
    scope |= {"path": path, "raw_path": path.encode(), "query_string": b"", "headers": [], **STATE}
    await app(scope, receive, send)
    body = b"".join(part.get("body", b"") for part in said)
    return said[0]["status"], body


def fast_api(messaging: Messaging, topic: str) -> Any:
    app = FastAPI(lifespan=messaging.lifespan)

    given = Depends(lambda: messaging.producer)

    @app.post("/orders/{number}")
    async def order(number: int, producer: Producer = given) -> dict[str, str]:
        result = await producer.send(Message(topic, f"order {number}"))
        return {"id": result.message_id}

    return app


def starlette(messaging: Messaging, topic: str) -> Any:
    async def order(request: Request) -> PlainTextResponse:
        result = await messaging.send(Message(topic, f"order {request.path_params['number']}"))
        return PlainTextResponse(result.message_id)

    routes = [Route("/orders/{number}", order, methods=["POST"])]
    return Starlette(routes=routes, lifespan=messaging.lifespan)


@pytest.mark.parametrize("make", [fast_api, starlette])
def test_application_sends_in_requests_and_consumes_beside_them(
    name_server: str, make: Callable[[Messaging, str], Any]
) -> None:
    async def scenario() -> None:
        topic, got = f"Asgi{make.__name__}", []
        messaging = Messaging(name_server, group="shop", serializer=text_serializer)

        @messaging.on(topic, group=f"billing-{make.__name__}", start="first")
        async def bill(message: ReceivedMessage) -> None:
            got.append(message.value)

        app = make(messaging, topic)
        for start in range(2):
            with pytest.raises(ClosedError, match="give the application lifespan="):
                await messaging.send(Message(topic, "too early"))
            async with served(app):
                status, body = await post(app, f"/orders/{start}")
                assert status == 200 and len(body) >= 32, body
                client_id = messaging.client.client_id
                await until(lambda start=start: f"order {start}" in got, "the order")
                assert len(messaging.consumers) == 1
            assert not messaging.consumers
        assert sorted(set(got)) == ["order 0", "order 1"]
        assert client_id

    run(scenario(), 120)


def test_start_that_fails_is_told_and_leaves_nothing_open(name_server: str) -> None:
    async def scenario() -> None:
        messaging = Messaging(name_server)
        messaging.on("bad name!", group="asgi-bad")(lambda message: None)
        app = Starlette(lifespan=messaging.lifespan)
        with pytest.raises(RuntimeError, match="bad name!"):
            async with served(app):
                pass
        with pytest.raises(ClosedError):
            _ = messaging.client
        with pytest.raises(ConfigError, match="group asgi-bad has a listener already"):
            messaging.on("other", group="asgi-bad")

    run(scenario(), 60)


def test_one_messaging_belongs_to_one_application(name_server: str) -> None:
    async def scenario() -> None:
        messaging = Messaging(name_server)
        async with messaging.lifespan():
            with pytest.raises(ConfigError, match="runs already"):
                async with messaging.lifespan():
                    pass
            with pytest.raises(ConfigError, match="group late comes too late"):
                messaging.on("topic", group="late")
            assert messaging.producer is not None

    run(scenario(), 60)
