"""The HTTP port of a broker under attack: it answers, and clients are served beside it."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram
from tests.waiting import wait_until

_CONNECTIONS_MAX = 64
_WAIT_S = 60.0


def status_of(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of clients and of HTTP, of a broker that runs to the end of the attacks."""
    folder = tmp_path_factory.mktemp("broker")
    [port] = free_ports(1, spread=(0, 1, 2))
    words = [
        "broker", "--json", f"listenPort={port}", "brokerIP1=127.0.0.1", "brokerName=alone",
        f"storePathRootDir={folder / 'store'}", *SMALL_STORE, f"httpPort={port + 2}",
    ]  # fmt: skip
    with LiveProgram(words, Path(folder) / "broker.log") as program:
        program.wait_until_serving(90.0)
        yield port, port + 2
        assert program.is_running


def check_well(ports: tuple[int, int]) -> None:
    wait_until(lambda: _answers(ports[1]), what="a port that answers", deadline_s=_WAIT_S)
    with WireClient(f"127.0.0.1:{ports[0]}") as client:
        assert client.send("Beside", 0, b"x").code == 0


def _answers(port: int) -> bool:
    try:
        return status_of(port, "/readyz") == 200
    except (OSError, http.client.HTTPException):
        return False


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_connections_that_say_nothing_do_not_add_up(ports: tuple[int, int]) -> None:
    held = [socket.create_connection(("127.0.0.1", ports[1])) for _ in range(3 * _CONNECTIONS_MAX)]
    try:
        # For each beyond the limit, one is closed at once.
        wait_until(
            lambda: sum(map(_is_closed, held)) >= 2 * _CONNECTIONS_MAX - 1,
            what="closed connections",
        )
        with WireClient(f"127.0.0.1:{ports[0]}") as client:
            assert client.send("Beside", 0, b"x").code == 0
        # A probe has a second or so, and the others hold on for twenty.
        assert status_of(ports[1], "/livez") == 200
    finally:
        for connection in held:
            connection.close()
    check_well(ports)


def test_requests_without_end_in_one_connection(ports: tuple[int, int]) -> None:
    with socket.create_connection(("127.0.0.1", ports[1]), timeout=_WAIT_S) as flood:
        flood.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        with WireClient(f"127.0.0.1:{ports[0]}") as client:
            assert client.send("Beside", 0, b"x").code == 0
        got = b""
        while got.count(b"HTTP/1.1 200") < 400:
            got += flood.recv(65_536)
    check_well(ports)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 65_536,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000,
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /" + b"/" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /readyz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"POST /readyz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /readyz?" + b"verbose=1&" * 1000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%00%0d%0aX:%20y HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_of_ours(ports: tuple[int, int], data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", ports[1]), timeout=_WAIT_S) as attack:
        try:
            attack.sendall(data)
            # It may be closed by now, which is no error of its own kind.
            with contextlib.suppress(OSError):
                attack.shutdown(socket.SHUT_WR)
            answer = attack.recv(65_536)
        except ConnectionError:
            answer = b""
    assert not answer or answer.split(b" ")[1] in (b"400", b"404", b"405", b"413", b"421"), answer
    assert b"\r\nX:" not in answer
    check_well(ports)


def test_pages_of_metrics_are_few_at_a_time(ports: tuple[int, int]) -> None:
    asked = []
    for _ in range(40):
        connection = socket.create_connection(("127.0.0.1", ports[1]), timeout=_WAIT_S)
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        asked.append(connection)
    for connection in asked:
        connection.close()
    check_well(ports)
    assert status_of(ports[1], "/metrics") == 200


@pytest.mark.parametrize(
    ("version", "lines"),
    [
        ("1.1", "Content-Length: 6\r\nTransfer-Encoding: chunked"),
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 6"),
        ("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ("1.1", "Transfer-Encoding: identity"),
        ("1.1", "Transfer-Encoding: identity\r\nContent-Length: 5"),
        ("1.1", "Transfer-Encoding: chunked, identity"),
        ("1.1", "Transfer-Encoding: \x0bchunked"),
        ("1.1", "Transfer-Encoding : chunked"),
        ("1.1", "X: a\r\n Transfer-Encoding: chunked"),
        ("1.1", "Content-Length: 6\r\n\t5"),
        ("1.0", "Transfer-Encoding: chunked"),
        ("1.1", "Content-Length: 5\r\nContent-Length: 5"),
        ("1.1", "Content-Length: 5, 5"),
        ("1.1", "Content-Length: +5"),
        ("1.1", "Content-Length: 0x5"),
        ("1.1", "Content-Length: 1_0"),
        ("1.1", "Content-Length:"),
        ("1.1", "Content-Length : 5"),
        ("1.1", f"Content-Length: {'9' * 5000}"),
        ("1.1", f"Content-Length: {'0' * 5000}"),
    ],
)
def test_length_that_a_proxy_may_read_otherwise_ends_the_connection(
    ports: tuple[int, int], version: str, lines: str
) -> None:
    """What is behind it would be a request of somebody else, to one of the two."""
    head = f"POST /readyz HTTP/{version}\r\nHost: localhost\r\n{lines}\r\n\r\n"
    behind = "0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", ports[1]), timeout=_WAIT_S) as attack:
        attack.sendall((head + behind).encode())
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := attack.recv(65_536):
                answer += chunk
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400"), answer
    check_well(ports)
