"""Requests to a collector whose answers are read no further than they say something.

The status is what counts; what was refused in part is told in a few words. Whoever listens at that
port may answer with gigabytes, or with a byte now and then: neither fills the memory of a broker,
nor keeps the thread that sends.
"""

import contextlib
import functools
import importlib
import io
import time
from typing import Any, Final

_ANSWER_BYTES_MAX: Final = 4096
_ANSWER_S: Final = 5.0


def brief_session() -> Any:
    """Returns a session of `requests`.

    Raises:
        ImportError: `requests` is not installed, which the exporters need.
    """
    requests: Any = importlib.import_module("requests")
    errors = (OSError, importlib.import_module("urllib3").exceptions.HTTPError)
    session = requests.Session()
    session.stream = True
    session.hooks["response"].append(functools.partial(_cut, requests.Response, errors))
    return session


def _cut(make: Any, errors: tuple[type[Exception], ...], response: Any, **_: Any) -> Any:
    """Returns the same answer with as much of its body as there is room and time for."""
    body, deadline_s = bytearray(), time.monotonic() + _ANSWER_S
    with contextlib.closing(response), contextlib.suppress(*errors):
        while len(body) < _ANSWER_BYTES_MAX and time.monotonic() < deadline_s:
            # One at a time: more would be waited for.
            piece = response.raw.read(1, decode_content=True)
            if not piece:
                break
            body += piece
    answer = make()
    for name in ("status_code", "reason", "url", "headers", "encoding", "request"):
        setattr(answer, name, getattr(response, name))
    answer.raw = io.BytesIO(bytes(body))
    return answer
