"""``ledgermq console -n HOST:9876``: see and run clusters in a browser, also clusters of Apache's.

Serves a page and the API behind it (``/api/v1``, described by ``/api/v1/openapi.json``). ``-n`` may
be given again for the name servers of other clusters. Where the brokers ask for accounts, people
sign in with one, and see and change what it may. On any address but this machine's own the console
always asks for an account.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from ledgermq.cli import security
from ledgermq.cli.failure import refuse
from ledgermq.cli.private_files import use_private_files
from ledgermq.client import ClientError
from ledgermq.console.call import Terms
from ledgermq.protocol.tls.engine import TlsError

_DEFAULT_LISTEN: Final = "127.0.0.1:8080"
_DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"
_REQUEST_TIMEOUT_S: Final = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        action="append",
        metavar="HOST:PORT[;...]",
        help="name servers of clusters; again for others; default: NAMESRV_ADDR of the"
        f" environment, or else {_DEFAULT_NAME_SERVERS}",
    )
    _add_port(parser)
    parser.add_argument("--read-only", action="store_true", help="nobody changes anything")
    parser.add_argument(
        "--reader",
        action="append",
        default=[],
        metavar="ACCESS_KEY",
        help="an account that looks and changes nothing; may be given again",
    )
    parser.add_argument(
        "--judge",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a broker whose word counts who is let in, and that is told of new accounts; may be"
        " given again; default: all that the name servers know, of which one that refuses everybody"
        " lets nobody in",
    )
    parser.add_argument(
        "--signature",
        choices=("any", "strong"),
        default="any",
        help="strong: whoever signs in never gives a signature of the stock form, which Apache's"
        " brokers need; any: where no registered broker knows another one; %(default)s",
    )
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which browsers ask; addresses and localhost need none",
    )
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        help="browsers come by https through a proxy, which sets Host and X-Forwarded-For",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="ask for no account on an address that others reach, when the brokers ask for none",
    )
    parser.add_argument(
        "--audit-file",
        type=Path,
        metavar="FILE",
        help="receives what is done, as JSON lines; FILE.1 to FILE.9 have what was before",
    )
    parser.add_argument(
        "--log-dir", type=Path, metavar="DIR", help="logs of brokers on this machine, *.log"
    )
    parser.add_argument(
        "--longer-history",
        default="",
        metavar="URL",
        help="where figures older than an hour are, e.g. a Grafana; the page links to it",
    )
    parser.add_argument("--json", action="store_true", help="status line as JSON")
    parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    security.add_arguments(parser)


def _add_port(parser: argparse.ArgumentParser) -> None:
    """Where browsers come to, and how."""
    parser.add_argument(
        "--listen",
        default=_DEFAULT_LISTEN,
        metavar="ADDR:PORT",
        help="where the console is; port 0 takes any; default: %(default)s",
    )
    parser.add_argument(
        "--listen-tls",
        metavar="FILE",
        default="",
        help="browsers come by https alone: a tls.properties with tls.server.certPath and keyPath",
    )
    parser.add_argument(
        "--next-port", action="store_true", help="if the port is taken, the next one that is free"
    )


def run(options: argparse.Namespace) -> int:
    """Serves until a signal; returns the exit code."""
    try:
        told = security.read_security(options)
        host, port = _place(options.listen)
        judges = tuple(_judge(text) for text in options.judge)
        if judges and len(options.namesrvAddr or ()) > 1:
            raise ValueError("--judge: for one set of name servers only, start a console for each")
    except (security.SecurityError, ValueError) as error:
        return refuse(str(error))
    use_private_files()
    # Under asyncio's reactor a page may wait for what the client brings. It has to be chosen before
    # anything loads the reactor.
    importlib.import_module("twisted.internet.asyncioreactor").install()
    program = importlib.import_module("ledgermq.cli.program")
    server = importlib.import_module("ledgermq.console.server")
    client = replace(told.client_config(), request_timeout_s=_REQUEST_TIMEOUT_S)
    config = server.ConsoleConfig(
        name_servers=options.namesrvAddr or [os.environ.get("NAMESRV_ADDR", _DEFAULT_NAME_SERVERS)],
        host=host,
        port=port,
        tls_file=options.listen_tls,
        client=client,
        must_sign_in=not (_is_loopback(host) or options.insecure),
        read_only=options.read_only,
        readers=frozenset(options.reader),
        signature=options.signature,
        host_names=tuple(options.host_name),
        behind_proxy=options.behind_proxy,
        audit_file=options.audit_file,
        next_port=options.next_port,
        terms=Terms(options.longer_history, options.log_dir, judges),
    )
    return _serve(options, config, program, server)


def _serve(options: argparse.Namespace, config: Any, program: Any, server: Any) -> int:
    def listening(host: str, port: int) -> None:
        if not (_is_loopback(host) or options.behind_proxy or options.listen_tls):
            warning = (
                "secrets cross the network unencrypted: give a certificate (--listen-tls), or use a"
                " proxy with TLS (--behind-proxy)"
            )
            print(f"ledgermq: {warning}", file=sys.stderr, flush=True)
        shown = f"[{host}]" if ":" in host else host
        url = f"{'https' if options.listen_tls else 'http'}://{shown}:{port}/"
        event: dict[str, object] = {"role": "CONSOLE", "serving": True, "url": url}
        program.print_line(f"console at {url}", event, options.json)

    try:
        service = server.ConsoleServer(config, program.reactor, listening)
    except (ClientError, TlsError, OSError) as error:
        return refuse(str(error))
    program.start_log()
    return int(
        program.run_program(
            service, until_stdin_closes=options.until_stdin_closes, expected=(ClientError,)
        )
    )


def _place(text: str) -> tuple[str, int]:
    """Reads ADDR:PORT.

    Raises:
        ValueError: it is none.
    """
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not host or not colon or not is_number or int(port) > 65_535:
        raise ValueError(f"--listen {text!r}: give address:port, the port from 0 to 65535")
    return host.strip("[]"), int(port)


def _judge(text: str) -> str:
    """Reads the address of a broker.

    Raises:
        ValueError: it is none.
    """
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65_535
    if not host or not colon or not is_number:
        raise ValueError(f"--judge {text!r}: give host:port, the port from 1 to 65535")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
