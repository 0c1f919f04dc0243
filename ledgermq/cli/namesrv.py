"""``ledgermq namesrv [-c FILE] [-p PORT] [key=value ...]``: one name server in this process.

Reads upstream's properties file; it wins over the environment (``environment.py``), words on the
command line over both. ``--print-config`` prints the effective configuration, with where it comes
from, and ends. One status line goes to stdout when it serves, the log goes
to stderr.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from twisted.internet.defer import Deferred

from ledgermq.cli.descriptors import use_all_descriptors
from ledgermq.cli.environment import keys_of_file, settings_of, with_sources
from ledgermq.cli.failure import refuse
from ledgermq.cli.private_files import use_private_files
from ledgermq.cli.program import print_line, reactor, run_program, start_log
from ledgermq.cli.settings import parse_settings
from ledgermq.namesrv.config import KEYS, NamesrvConfig, load_namesrv_config
from ledgermq.namesrv.errors import NamesrvError
from ledgermq.namesrv.service import NamesrvService
from ledgermq.protocol.tls.contexts import TlsSettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="its properties")
    parser.add_argument("-p", "--port", type=int, help="TCP port, as listenPort=")
    parser.add_argument("--print-config", action="store_true", help="print the settings and end")
    parser.add_argument("--json", action="store_true", help="status lines as JSON")
    parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="win over the file")


class _Announced:
    """The service, with a status line when it serves."""

    exit_code = 0

    def __init__(self, config: NamesrvConfig, as_json: bool) -> None:
        self._service = NamesrvService(config, reactor)
        self._host = config.bind_address
        self._as_json = as_json

    def start(self) -> Deferred[None]:
        """Fires when the name server serves and has said so."""
        return self._service.start().addCallback(self._announce)

    def _announce(self, _: None) -> None:
        address = f"{self._host}:{self._service.port}"
        event = {"event": "status", "role": "SERVING", "address": address, "pid": os.getpid()}
        print_line(f"name server serves on {address}", event, self._as_json)

    def stop(self) -> Deferred[None]:
        """Fires when all is closed."""
        return self._service.stop()


def run(options: argparse.Namespace) -> int:
    """Runs the name server until a signal; returns the exit code."""
    try:
        settings = parse_settings(options.settings)
    except ValueError as error:
        return refuse(str(error))
    if options.port is not None:
        settings["listenPort"] = str(options.port)
    try:
        environment = settings_of(KEYS, os.environ)
        config = load_namesrv_config(options.config, settings, environment)
    except (NamesrvError, OSError) as error:
        return refuse(str(error))
    except ValueError as error:
        return refuse(f"{options.config or 'environment'}: {error}")
    if options.print_config:
        print(
            with_sources(config.texts, environment, keys_of_file(options.config), settings), end=""
        )
        return 0
    start_log(config.log_form, {"node": "namesrv"})
    use_private_files()
    use_all_descriptors()
    try:
        service = _Announced(config, options.json)
    except (TlsSettingsError, NamesrvError) as error:
        return refuse(str(error))
    return run_program(
        service,
        until_stdin_closes=options.until_stdin_closes,
        expected=(NamesrvError,),
    )
