"""The HTTP port over a real socket: replies, bounds, streams, and clients that vanish."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Iterator
from subprocess import run

import msgspec
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from ledgermq.http.application import Application
from ledgermq.http.events import EventHub
from ledgermq.http.hosts import HostGuard
from ledgermq.http.limits import Limits
from ledgermq.http.port import HttpPort
from ledgermq.http.replies import Reply, json_reply, text_reply
from ledgermq.http.requests import Request
from ledgermq.http.routes import Routes
from tests.unit.http.browser import Answer, Browser, ask, connect

# A part is larger than what the kernels of both ends keep together.
_PART = b"x" * 600_000


class Change(msgspec.Struct, forbid_unknown_fields=True):
    queues: int


async def turn() -> None:
    """Lets the reactor turn once."""
    await deferLater(reactor, 0, lambda: None)


class PortTests(TestCase):
    def setUp(self) -> None:
        self.made = 0
        self.seen: list[Request] = []
        self.hub = EventHub(reactor, viewers_max=2)
        self.asked_count = 0
        self.cancelled: list[object] = []
        self.port = self.opened(Limits())

    def opened(self, limits: Limits) -> HttpPort:
        routes = Routes()
        routes.add("GET", "/hello", lambda request: text_reply("hello"))
        routes.add("GET", "/topics/{topic}", self.topic)
        routes.add("PUT", "/topics/{topic}", self.change)
        routes.add("GET", "/later", self.later)
        routes.add("GET", "/held", self.hold)
        routes.add("GET", "/costly", self.cost)
        routes.add("GET", "/large", self.large)
        routes.add("GET", "/parts", lambda request: Reply(body=self.parts()))
        routes.add("GET", "/fault", self.fault)
        routes.add("GET", "/events", lambda request: self.hub.stream({"news"}))
        port = HttpPort(
            reactor, Application(routes, [HostGuard()]), host="127.0.0.1", port=0, limits=limits
        )
        port.start()
        self.addCleanup(port.stop)
        return port

    def topic(self, request: Request) -> Reply:
        self.seen.append(request)
        return json_reply(
            {"topic": request.params["topic"], "count": request.integer("n", 7, low=1, high=9)}
        )

    def change(self, request: Request) -> Reply:
        return json_reply({"queues": request.json(Change).queues})

    async def later(self, request: Request) -> Reply:
        await turn()
        return text_reply("later")

    def cost(self, request: Request) -> Reply:
        """Takes a millisecond of the processor, whatever else the machine does."""
        self.asked_count += 1
        end_s = time.thread_time() + 0.001
        while time.thread_time() < end_s:
            pass
        return text_reply("costly")

    def large(self, request: Request) -> Reply:
        self.asked_count += 1
        return Reply(body=_PART, content_type="text/plain")

    def hold(self, request: Request) -> Awaitable[Reply]:
        self.asked_count += 1
        return Deferred(self.cancelled.append)

    def parts(self) -> Iterator[bytes]:
        for _ in range(40):
            self.made += 1
            yield _PART

    def fault(self, request: Request) -> Reply:
        raise KeyError("a secret")

    async def ask(self, path: str, **words: object) -> Answer:
        return await ask(reactor, self.port.port, path, **words)  # type: ignore[arg-type]

    async def connected(self) -> Browser:
        browser = await connect(reactor, self.port.port)
        self.addCleanup(browser.close)
        return browser

    # Replies.

    async def test_reply_has_the_security_headers(self) -> None:
        answer = await self.ask("/hello")
        self.assertEqual((answer.status, answer.body), (200, b"hello"))
        self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertIn("default-src 'none'", answer.headers["content-security-policy"])

    async def test_connection_stays_and_answers_in_order(self) -> None:
        browser = await self.connected()
        head = f"HTTP/1.1\r\nHost: 127.0.0.1:{self.port.port}\r\n\r\n"
        browser.send(f"GET /later {head}GET /hello {head}GET /topics/last {head}".encode())
        data = await browser.until(b"last")
        self.assertLess(data.index(b"later"), data.index(b"hello"))
        self.assertEqual(data.count(b"HTTP/1.1 200"), 3)

    async def test_requests_of_one_chunk_do_not_share_a_turn(self) -> None:
        browser = await self.connected()
        head = f"GET /topics/a HTTP/1.1\r\nHost: 127.0.0.1:{self.port.port}\r\n\r\n"
        browser.send(head.encode() * 300)
        most = seen = 0
        while seen < 300:
            await turn()
            most, seen = max(most, len(self.seen) - seen), len(self.seen)
        # Turns of the test and of the port need not be the same.
        self.assertLessEqual(most, 2)
        browser.send(head.replace("/topics/a", "/hello").encode())
        self.assertEqual((await browser.until(b"hello")).count(b" 200 OK"), 301)

    async def test_little_is_read_at_a_time(self) -> None:
        """For each line of a head, what is left of a chunk is copied."""
        browser = await self.connected()
        while not self.port.connection_count:
            await turn()
        [connection] = self.port._connections
        receive, sizes = connection.dataReceived, []

        def received(data: bytes) -> None:
            sizes.append(len(data))
            receive(data)

        connection.dataReceived = received  # type: ignore[method-assign]
        head = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
        browser.send(head * 2000 + head.replace(b"/hello", b"/later"))
        self.assertEqual((await browser.until(b"later")).count(b" 200 OK"), 2001)
        # What comes while a request waits is put together, with a chunk more than is waited for.
        self.assertLessEqual(max(sizes), 16_384 + 8_192)

    async def test_those_who_ask_for_much_leave_most_of_a_turn_to_a_newcomer(self) -> None:
        for _ in range(30):
            browser = await self.connected()
            browser.send(b"GET /costly HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        while self.asked_count < 200:
            await turn()
        asked_count = self.asked_count
        for _ in range(5):
            self.assertEqual((await self.ask("/hello")).body, b"hello")
        # A connection, its request, its reply and its end take some turns each time.
        self.assertLess(self.asked_count - asked_count, 150)

    async def test_connection_that_ends_between_its_requests_is_forgotten(self) -> None:
        browser = await self.connected()
        browser.send(b"GET /topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
        while not self.seen:
            await turn()
        browser.close()
        while self.port.connection_count:
            await turn()
        await turn()
        self.assertLess(len(self.seen), 300)

    async def test_head_is_get_without_its_body(self) -> None:
        answer = await self.ask("/hello", method="HEAD")
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(answer.headers["content-length"], "5")

    async def test_name_in_the_path_may_have_a_slash(self) -> None:
        answer = await self.ask("/topics/a%2Fb%20%25?n=3")
        self.assertEqual(answer.json, {"topic": "a/b %", "count": 3})

    async def test_view_may_answer_later(self) -> None:
        self.assertEqual((await self.ask("/later")).body, b"later")

    async def test_all_parts_come(self) -> None:
        answer = await self.ask("/parts")
        self.assertEqual(len(answer.body), 40 * len(_PART))

    # Refusals.

    async def test_refusal_says_field_value_and_limit(self) -> None:
        answer = await self.ask("/topics/a?n=10")
        self.assertEqual(answer.status, 400)
        self.assertEqual(
            answer.error,
            {
                "code": "bad_request",
                "message": "n is a whole number from 1 to 9",
                "field": "n",
                "value": "10",
                "limit": [1, 9],
            },
        )

    async def test_unknown_place_and_wrong_method(self) -> None:
        self.assertEqual((await self.ask("/nowhere")).status, 404)
        answer = await self.ask("/hello", method="POST")
        self.assertEqual((answer.status, answer.headers["allow"]), (405, "GET, HEAD"))

    async def test_body_of_another_shape_is_refused_with_its_place(self) -> None:
        told = {"Content-Type": "application/json"}
        path = "/topics/a"
        for body, status, field in (
            (b'{"queues": "x"}', 400, "queues"),
            (b'{"queues": 1, "more": 2}', 400, "body"),
            (b"{", 400, "body"),
            (b"[" * 100_000, 400, "body"),
        ):
            answer = await self.ask(path, method="PUT", headers=told, body=body)
            self.assertEqual((answer.status, answer.error["field"]), (status, field))
        answer = await self.ask(path, method="PUT", headers=told, body=b'{"queues": 4}')
        self.assertEqual(answer.json, {"queues": 4})
        self.assertEqual((await self.ask(path, method="PUT", body=b"{}")).status, 415)

    async def test_fault_tells_nothing_but_the_log(self) -> None:
        answer = await self.ask("/fault")
        self.assertEqual(answer.status, 500)
        self.assertNotIn(b"secret", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    async def test_foreign_names_and_pages_are_refused(self) -> None:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "a b", "["):
            answer = await self.ask("/hello", headers={"Host": host})
            self.assertEqual(answer.status, 421, host)
        here = f"127.0.0.1:{self.port.port}"
        body, json_type = b'{"queues": 1}', {"Content-Type": "application/json"}
        for header in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"https://{here}"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            answer = await self.ask(
                "/topics/a", method="PUT", headers={**json_type, **header}, body=body
            )
            self.assertEqual((answer.status, answer.error["field"]), (403, next(iter(header))))
        own = {"Origin": f"http://{here}", "Sec-Fetch-Site": "same-origin", **json_type}
        answer = await self.ask("/topics/a", method="PUT", headers=own, body=body)
        self.assertEqual(answer.status, 200)

    # Bounds.

    async def test_large_body_is_refused_and_told(self) -> None:
        self.port = self.opened(Limits(body_bytes_max=1000))
        answer = await self.ask("/topics/a", method="PUT", body=b"x" * 1001)
        self.assertEqual((answer.status, answer.error["limit"]), (413, 1000))
        browser = await self.connected()
        browser.send(b"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\n")
        browser.send(b"Content-Length: 999999999999\r\n\r\n")
        self.assertEqual(Answer(await browser.until_closed()).status, 413)

    async def test_bodies_in_chunks_are_not_read(self) -> None:
        """To put one together of chunks of one byte held up everybody else."""
        browser = await self.connected()
        browser.send(b"PUT /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")
        browser.send(b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100)
        self.assertEqual(Answer(await browser.until_closed()).status, 400)

    async def test_head_is_bounded(self) -> None:
        for lines in (b"X: " + b"x" * 17_000 + b"\r\n", b"X: 1\r\n" * 101, b"Host: a\r\n" * 2):
            browser = await self.connected()
            browser.send(b"GET /hello HTTP/1.1\r\n" + lines + b"\r\n")
            answer = Answer(await browser.until(b"}}"))
            self.assertEqual(answer.status, 400)

    async def test_what_is_no_request_is_refused(self) -> None:
        for line in (
            b"\x16\x03\x01\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n",
            b" GET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
            # A line that goes on with the next one.
            b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
            b"GET /hello HTTP/1.1\r\n\tHost: localhost\r\n\r\n",
        ):
            browser = await self.connected()
            browser.send(line)
            self.assertEqual(Answer(await browser.until(b"}}")).status, 400)

    async def test_slow_head_and_idle_connection_are_closed(self) -> None:
        self.port = self.opened(Limits(request_s=0.05, idle_s=60.0))
        browser = await self.connected()
        browser.send(b"GET /hello HTT")
        self.assertEqual(await browser.until_closed(), b"")
        self.port = self.opened(Limits(idle_s=0.05))
        browser = await self.connected()
        self.assertEqual(await browser.until_closed(), b"")

    async def test_new_connection_closes_the_one_that_waits_longest(self) -> None:
        self.port = self.opened(Limits(connections_max=2))
        head = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
        first, second = await self.connected(), await self.connected()
        second.send(head[:9])
        # It asked last, so it is not the one.
        first.send(head)
        await first.until(b"hello")
        self.assertEqual((await self.ask("/hello")).status, 200)
        self.assertEqual(self.port.refused_count, 1)
        self.assertEqual(await second.until_closed(), b"")
        self.assertFalse(first.is_closed)
        self.assertLessEqual(self.port.connection_count, 2)

    async def test_connections_that_are_answered_are_not_closed_for_new_ones(self) -> None:
        self.port = self.opened(Limits(connections_max=2))
        for _ in range(2):
            browser = await self.connected()
            browser.send(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while self.asked_count < 2:
            await turn()
        third = await self.connected()
        self.assertEqual(await third.until_closed(), b"")
        self.assertEqual((self.port.connection_count, self.port.refused_count), (2, 1))

    async def test_view_that_takes_too_long_is_cancelled(self) -> None:
        self.port = self.opened(Limits(answer_s=0.05))
        answer = await self.ask("/held")
        self.assertEqual((answer.status, len(self.cancelled)), (503, 1))

    async def test_view_of_a_vanished_client_is_cancelled(self) -> None:
        browser = await self.connected()
        browser.send(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while self.asked_count == 0:
            await turn()
        browser.close()
        while self.port.connection_count:
            await turn()
        self.assertEqual(len(self.cancelled), 1)

    async def test_parts_are_made_as_fast_as_they_are_read(self) -> None:
        self.port = self.opened(Limits(stall_s=0.1))
        browser = await self.connected()
        browser.transport.pauseProducing()
        browser.send(b"GET /parts HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # It reads nothing, so it loses its connection, and not all was made.
        while not self.port.connection_count or not self.made:
            await turn()
        while self.port.connection_count:
            await turn()
        self.assertLess(self.made, 40)

    async def test_pages_are_made_as_fast_as_they_are_read(self) -> None:
        """A client that asked in a pipeline and read nothing had all replies kept for it."""
        browser = await self.connected()
        browser.transport.pauseProducing()
        browser.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        for _ in range(300):
            await turn()
        # What the kernels of both ends keep, and one page more.
        self.assertLess(self.asked_count, 30)
        browser.transport.resumeProducing()
        while self.asked_count < 100:
            await turn()

    async def test_who_reads_nothing_is_closed_for_a_new_connection(self) -> None:
        """Its next request waits until it reads, and nobody else was let in until then."""
        self.port = self.opened(Limits(connections_max=2))
        for _ in range(2):
            browser = await self.connected()
            browser.transport.pauseProducing()
            browser.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            asked_count = -1
            while asked_count != self.asked_count:
                asked_count = self.asked_count
                for _ in range(300):
                    await turn()
        self.assertLess(self.asked_count, 60)
        for _ in range(3):
            self.assertEqual((await self.ask("/hello")).status, 200)
        self.assertLessEqual(self.port.connection_count, 2)

    async def test_answers_that_nobody_reads_take_bounded_memory(self) -> None:
        """Each connection had an answer of any size kept for it."""
        self.port = self.opened(Limits(answers_bytes_max=2 * len(_PART)))
        browser = await self.connected()
        browser.transport.pauseProducing()
        browser.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        asked_count = -1
        while asked_count != self.asked_count:
            asked_count = self.asked_count
            for _ in range(300):
                await turn()
        self.assertEqual(self.port.unread_bytes, len(_PART))
        self.assertEqual((await self.ask("/large")).status, 503)
        self.assertEqual((await self.ask("/hello")).status, 200)
        browser.transport.abortConnection()
        while self.port.connection_count:
            await turn()
        self.assertEqual(self.port.unread_bytes, 0)
        self.assertEqual((await self.ask("/large")).status, 200)

    async def test_pages_that_nobody_reads_cost_the_connection(self) -> None:
        self.port = self.opened(Limits(stall_s=0.1))
        browser = await self.connected()
        browser.transport.pauseProducing()
        browser.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        while not self.asked_count:
            await turn()
        while self.port.connection_count:
            await turn()
        self.assertLess(self.asked_count, 30)

    # Streams.

    async def watch(self) -> Browser:
        browser = await self.connected()
        browser.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await browser.until(b"retry")
        return browser

    async def test_events_come_to_all_who_want_them(self) -> None:
        viewers = [await self.watch(), await self.watch()]
        self.assertEqual(self.hub.names, {"news"})
        self.assertEqual(self.hub.publish("other", 1), 0)
        self.assertEqual(self.hub.publish("news", {"text": "a\nb"}), 2)
        for viewer in viewers:
            data = await viewer.until(b"a\\nb")
            self.assertIn(b'event: news\ndata: {"text":"a\\nb"}\n\n', data)
            self.assertIn(b"Content-Type: text/event-stream", data)
        answer = await self.ask("/events")
        self.assertEqual((answer.status, answer.error["limit"]), (503, 2))

    async def test_vanished_viewer_is_forgotten(self) -> None:
        viewer = await self.watch()
        viewer.close()
        while self.hub.viewer_count:
            await turn()
        self.assertEqual(self.hub.publish("news", 1), 0)

    async def test_viewer_that_does_not_read_is_dropped(self) -> None:
        viewer, other = await self.watch(), await self.watch()
        viewer.transport.pauseProducing()
        for _ in range(10_000):
            self.hub.publish("news", "x" * 10_000)
            if self.hub.viewer_count == 1:
                break
            await turn()
        self.assertEqual(self.hub.viewer_count, 1)
        self.hub.publish("news", "still there")
        await other.until(b"still there")

    async def test_hub_ends_its_streams(self) -> None:
        viewer = await self.watch()
        self.hub.close()
        self.assertTrue((await viewer.until(b"0\r\n\r\n")).endswith(b"0\r\n\r\n"))
        self.assertEqual(self.hub.viewer_count, 0)


def test_importing_the_room_loads_no_server() -> None:
    code = "import ledgermq.http.application, ledgermq.http.events, ledgermq.http.hosts, sys;"
    code += "assert 'twisted.web' not in sys.modules, sorted(sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
