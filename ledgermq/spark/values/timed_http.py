"""HTTP for answers that have to be there in time as a whole, however they drip.

A timeout of a socket is that of a single read: an answer whose head comes byte by byte is waited
for as long as it comes. Here the timeout of a request is that of all reads of its answer together.
"""

import http.client
import io
import socket
import time
import urllib.request
from typing import Any


class _TimedFile(io.RawIOBase):
    """What comes from a socket, until its time is over."""

    def __init__(self, connection: socket.socket, file: io.RawIOBase) -> None:
        self._connection = connection
        self._file = file
        self._timeout_s = connection.gettimeout()
        self._begun_s = time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int | None:
        if self._timeout_s is not None:
            left_s = self._begun_s + self._timeout_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"the answer took more than {self._timeout_s:g} s")
            self._connection.settimeout(left_s)
        try:
            return self._file.readinto(room)
        except TimeoutError as error:
            raise TimeoutError(f"the answer took more than {self._timeout_s:g} s") from error

    def close(self) -> None:
        self._file.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *words: Any, **more: Any) -> None:
        super().__init__(sock, *words, **more)
        self.fp: Any = io.BufferedReader(_TimedFile(sock, self.fp.detach()))


class _Connection(http.client.HTTPConnection):
    response_class = _Response


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response


class TimedHttp(urllib.request.HTTPHandler):
    """Opens ``http:`` URLs."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class TimedHttps(urllib.request.HTTPSHandler):
    """Opens ``https:`` URLs, by the certificates of the system."""

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, request)
