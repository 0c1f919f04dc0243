"""What commands share that look at a cluster or change it through an AdminClient."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from ledgermq.cli import security
from ledgermq.cli.failure import failed
from ledgermq.cli.moments import moment_ms
from ledgermq.cli.remote import AdminError
from ledgermq.cli.security import SecurityError, read_security
from ledgermq.cli.settings import add_name_servers
from ledgermq.client import ClientError
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.errors import RemoteProtocolError

# What a command may meet whose text says all that a person needs.
EXPECTED: tuple[type[Exception], ...] = (
    ClientError,
    AdminError,
    RemoteProtocolError,
    SecurityError,
    OSError,
)


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares where the cluster is, who asks, and how results are printed."""
    add_name_servers(parser)
    parser.add_argument("--json", action="store_true", help="results and errors as JSON")
    parser.add_argument(
        "--timeout",
        type=positive,
        default=5.0,
        metavar="SECONDS",
        help="for one answer; default: %(default)g",
    )
    security.add_arguments(parser)


@contextlib.contextmanager
def open_admin(options: argparse.Namespace) -> Iterator[AdminClient]:
    """Opens the cluster that the options name.

    Raises:
        ClientError, SecurityError: the options cannot be used.
    """
    config = dataclasses.replace(
        read_security(options).client_config(),
        request_timeout_s=options.timeout,
        connect_timeout_s=min(options.timeout, 3.0),
    )
    with AdminClient(options.namesrvAddr, config=config) as admin:
        yield admin


def run_with_admin(
    options: argparse.Namespace, work: Callable[[AdminClient, argparse.Namespace], int | None]
) -> int:
    """Does the work of a command; returns its exit code."""
    try:
        with open_admin(options) as admin:
            return work(admin, options) or 0
    except EXPECTED as error:
        return failed(error, as_json=options.json)


def positive(text: str) -> float:
    """Reads a number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0, up to 86400")
    return number


def count(text: str) -> int:
    """Reads a whole number above zero."""
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) <= 1_000_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def moment(text: str) -> int:
    """Reads a moment; see moments.py."""
    try:
        return moment_ms(text)
    except AdminError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
