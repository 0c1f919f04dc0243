"""``ledgermq health [--ready | --live | --started | --quorum-safe] [-c FILE | --port PORT]``:
one question about a broker's health, for containers and scripts.

Asks the broker's HTTP port, that of --port, of the file, or of the environment
(LEDGERMQ_HTTP_PORT), by TLS where its file names a certificate (httpTlsFile) or --tls-config
says how. Exit codes: 0 well, 1 not well or no answer (the reason is on stderr), 2 wrong usage. With
--wait it asks again each second until it is well or the time is over.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import time
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.config.http_keys import HTTP_KEYS
from ledgermq.cli.environment import settings_of
from ledgermq.cli.failure import fail
from ledgermq.protocol.plain_text import escaped_lines
from ledgermq.protocol.tls.contexts import TlsSettingsError, load_client_tls, read_tls_file
from ledgermq.state.errors import ConfigError

_AGAIN_S: Final = 1.0
_ANSWER_BYTES_MAX: Final = 65_536


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    question = parser.add_mutually_exclusive_group()
    for name, path, text in (
        ("--ready", "readyz", "whether clients are well served there (default)"),
        ("--live", "livez", "whether it lives; never because of other members"),
        ("--started", "startupz", "whether it has opened its files and joined its group"),
        ("--quorum-safe", "quorum-safe", "whether the others are a majority without it"),
    ):
        question.add_argument(name, dest="question", action="store_const", const=path, help=text)
    parser.set_defaults(question="readyz")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("-c", "--config", type=Path, metavar="FILE", help="its httpPort is asked")
    place.add_argument("--port", type=int, metavar="PORT", help="its httpPort")
    parser.add_argument(
        "--tls-config",
        type=Path,
        metavar="FILE",
        help="ask by TLS, as this tls.properties says; default: that of httpTlsFile, with -c",
    )
    parser.add_argument("--host", default=None, help="its address; 127.0.0.1, or as in the file")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="S", help="for one answer")
    parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="ask for so long")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every check")


def run(options: argparse.Namespace) -> int:
    """Asks, and returns the exit code."""
    try:
        place = _place(options)
    except (ConfigError, TlsSettingsError, OSError, ValueError) as error:
        return fail(str(error))
    path = f"/{options.question}?verbose={'yes' if options.verbose else 'no'}"
    end = time.monotonic() + options.wait
    while True:
        status, text = _ask(place, path, options.timeout)
        if status == 200 or time.monotonic() >= end:
            break
        time.sleep(_AGAIN_S)
    if options.json:
        outcome = {"question": options.question, "ok": status == 200, "text": text.strip()}
        print(json.dumps(outcome))
        return 0 if status == 200 else 1
    if status != 200:
        return fail(f"{options.question}: {text.strip()}")
    print(escaped_lines(text.strip()))
    return 0


class _Place(NamedTuple):
    """Where to ask."""

    host: str
    port: int
    # None: in plain.
    tls: ssl.SSLContext | None


def _place(options: argparse.Namespace) -> _Place:
    """
    Raises:
        ConfigError: the file has no port, or cannot be a broker's.
        TlsSettingsError: a file of TLS cannot be used.
        ValueError: no port.
    """
    told = options.tls_config
    if options.port is not None:
        if not 0 < options.port < 65_536:
            raise ValueError(f"--port {options.port}: allowed is 1 to 65535")
        tls = None if told is None else _tls(str(told))
        return _Place(options.host or "127.0.0.1", options.port, tls)
    # The other settings of the environment may be complete with the broker's own words only.
    environment = settings_of((key.name for key in HTTP_KEYS), os.environ)
    config = load_broker_config(options.config, None, environment)
    if not config.http_port:
        raise ConfigError("httpPort", "0", "a port, so that health can be asked for")
    bound = config.http_bind_host
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, bound)
    path = config.http_tls_file if told is None else str(told)
    tls = _tls(path) if path else None
    return _Place(options.host or loopback, config.http_port, tls)


def _tls(path: str) -> ssl.SSLContext:
    """Trusts whom the file trusts, or else the broker's own certificate where the file names it: it
    is at hand.

    Raises:
        TlsSettingsError: the file cannot be used.
    """
    settings = read_tls_file(path)
    own = settings.get("tls.server.certPath", "")
    if settings.get("tls.client.trustCertPath") or not own:
        return load_client_tls(path)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(Path(own).expanduser())
    return context


def _ask(place: _Place, path: str, timeout_s: float) -> tuple[int, str]:
    """Returns the status, 0 where there was no answer, and what was said."""
    host, port, tls = place
    if tls is None:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
    try:
        connection.request("GET", path, headers={"Host": f"127.0.0.1:{port}"})
        reply = connection.getresponse()
        return reply.status, reply.read(_ANSWER_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, f"no answer from {host}:{port}: {error or type(error).__name__}"
    finally:
        connection.close()
