"""What a collector answers: as much of it is read as says something, and no more."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from opentelemetry.sdk.metrics.export import Gauge, Metric, NumberDataPoint
from twisted.logger import capturedLogs

from ledgermq.broker.telemetry.exporting import Exporting

MIB = 1 << 20
ANSWER_MIB = 64
# What sockets of both ends may hold of an answer that nobody reads.
HELD_MIB = 24
POINT: NumberDataPoint = NumberDataPoint({}, 0, 1, 1)
METRIC = Metric("ledgermq_up_seconds", "", "", Gauge([POINT]))


@contextlib.contextmanager
def collector(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """One that takes a request, and answers it so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                take(connection)
                with contextlib.suppress(OSError):
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def take(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.splitlines()
        if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65_536)


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    written: list[int] = []

    def answer(connection: socket.socket) -> None:
        length = ANSWER_MIB * MIB
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode())
        for _ in range(ANSWER_MIB):
            connection.sendall(bytes(MIB))
            written.append(MIB)

    with collector(answer) as endpoint:
        exporting = Exporting(endpoint, {}, "1")
        exporting.send_metrics([METRIC])
        exporting.close()
    assert sum(written) <= HELD_MIB * MIB


def test_an_error_of_a_collector_stands_in_the_log() -> None:
    body = b"no such tenant"

    def answer(connection: socket.socket) -> None:
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    with capturedLogs() as events, collector(answer) as endpoint:
        exporting = Exporting(endpoint, {}, "1")
        exporting.send_metrics([METRIC])
        exporting.close()
    assert any("code: 400" in str(event.get("text")) for event in events)
