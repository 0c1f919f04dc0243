"""``ledgermq broker -c FILE [-n NAMESRV] [key=value ...]``: one broker in this process.

Reads upstream's properties file; it wins over the environment (``environment.py``), words on the
command line over both. ``-p`` prints the effective configuration, with where it comes from, and
ends. A status line goes to stdout at each change of role, the log goes
to stderr.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.config.broker_config import (
    BrokerConfig,
    effective_properties,
    load_broker_config,
)
from ledgermq.broker.config.keys import KEY_BY_NAME
from ledgermq.broker.service import BrokerService
from ledgermq.cli.descriptors import use_all_descriptors
from ledgermq.cli.environment import keys_of_file, settings_of, with_sources
from ledgermq.cli.failure import EXIT_CONFIG, fail, refuse
from ledgermq.cli.private_files import use_private_files
from ledgermq.cli.program import (
    EXIT_DISK_FAILED,
    EXIT_NOT_READ,
    print_line,
    reactor,
    run_program,
    start_log,
    tell_starting,
)
from ledgermq.cli.settings import parse_settings
from ledgermq.commitlog.errors import CommitLogError, UnreadRecordError
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.store.errors import MembershipError, VoteStateLostError
from ledgermq.dledger.store.opening_progress import OpeningStoppedError
from ledgermq.protocol.tls.contexts import TlsSettingsError
from ledgermq.state.errors import BrokerError, ConfigError
from ledgermq.state.formats import FORMATS, Format

# Allocations between two collections of the youngest generation; the default is 700.
_GC_THRESHOLDS: Final = (50_000, 25, 50)
# How long a thread waits for the interpreter while the reactor computes: the one that syncs waits
# before each sync and behind it, and Python's 5 ms are longer than a disk needs. It holds for the
# whole process, so it is set where the process is ours alone. To be confirmed on a quiet machine:
# what was measured on a busy one had more noise than difference (bench/sync_ratio.py).
_SWITCH_S: Final = 0.0005
# How soon a change of role is told.
_LOOK_S: Final = 0.05
# How often it is told how far the start is, and written to the log; a start that stands still for
# so long is a service manager's to end.
_TOLD_S: Final = 1.0
_LOGGED_S: Final = 15.0
_STILL_S: Final = 120.0

_log = Logger()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="its properties")
    parser.add_argument(
        "-n", "--namesrvAddr", "--namesrv-addr", metavar="HOST:PORT[;...]", help="as namesrvAddr="
    )
    parser.add_argument("-p", "--print-config", action="store_true", help="print settings and end")
    parser.add_argument("--json", action="store_true", help="status lines as JSON")
    parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="win over the file")


class _Announced:
    """The service, with a status line at each change."""

    def __init__(self, config: BrokerConfig, as_json: bool, formats: Sequence[Format]) -> None:
        self._config, self._formats = config, formats
        self._service = self._new_service()
        self._is_stopping = False
        # Not 0 when the disk has failed, damaged files could not be repaired, or a newer program
        # wrote what this one does not read: then the program ends, for whoever watches it.
        self.exit_code = 0
        self._as_json = as_json
        self._last: dict[str, object] = {}
        self._watch = LoopingCall(self._look)
        self._opening_watch = LoopingCall(self._tell_opening)
        # What was told of the opening last, and when it was logged.
        self._opening_text, self._logged_s = "", 0.0

    def _new_service(self) -> BrokerService:
        return BrokerService(
            self._config,
            reactor,
            on_ready=self._look,
            on_damage=self._repair_by_restart,
            formats=self._formats,
            # The reactor turns meanwhile: health is asked for, and a stop is heard.
            run_opening=deferToThread,
        )

    def _repair_by_restart(self) -> None:
        """Opens the files anew, which repairs what was found damaged."""
        print_line("stops to repair its files", {"event": "repair"}, self._as_json)
        stopped = self._service.stop()
        stopped.addCallback(lambda _: self._start_again()).addErrback(self._not_repaired)

    def _start_again(self) -> Deferred[Any] | None:
        if self._is_stopping:
            return None
        self._service = self._new_service()
        return self._service.start()

    def _not_repaired(self, failure: Failure) -> None:
        if self._is_stopping and failure.check(OpeningStoppedError):
            return
        fail(f"not repaired: {failure.getErrorMessage() or repr(failure.value)}")
        if not self._is_stopping:
            self.exit_code = EXIT_DISK_FAILED
            reactor.stop()

    def start(self) -> Deferred[Any]:
        """Fires when the broker takes part in its group."""
        started = self._service.start()
        self._logged_s = reactor.seconds()
        self._opening_watch.start(_TOLD_S, now=False)
        started.addBoth(self._opening_over)
        return started.addCallbacks(self._started, self._not_started)

    def _tell_opening(self) -> None:
        text = self._service.opening_text
        if not text or text == self._opening_text:
            return
        self._opening_text = text
        tell_starting(text, _STILL_S)
        if reactor.seconds() >= self._logged_s + _LOGGED_S:
            self._logged_s = reactor.seconds()
            _log.info("{text}", text=text)

    def _opening_over(self, result: object) -> object:
        self._opening_watch.stop()
        return result

    def _started(self, _: object) -> None:
        # What the start has made stays to the end.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        self._watch.start(_LOOK_S)

    def _not_started(self, failure: Failure) -> Failure | None:
        if self._is_stopping and failure.check(OpeningStoppedError):
            # Who is told to stop in the midst of its start has not failed.
            return None
        if failure.check(UnreadRecordError):
            self.exit_code = EXIT_NOT_READ
        elif failure.check(MembershipError, VoteStateLostError):
            self.exit_code = EXIT_CONFIG
        return failure

    def _look(self) -> None:
        service = self._service
        leadership = service.leadership
        alarm = leadership.failure or leadership.membership_alarm or leadership.alarm
        state: dict[str, object] = {
            "role": service.leadership.role,
            "serving": service.leadership.is_serving,
            "alarm": alarm,
            "broker_id": service.leadership.broker_id,
            "name_servers": service.registered_with,
            "address": service.address,
            "dledger": service.ledger_address,
            "pid": os.getpid(),
        }
        if state != self._last:
            self._last = state
            serves = "serves" if service.leadership.is_serving else "does not take messages"
            text = f"{service.leadership.role} at {service.address}, {serves}"
            if alarm is not None:
                text += f"; {alarm}"
            print_line(text, {"event": "status", **state}, self._as_json)
        if service.has_failed and not self._is_stopping:
            is_unread = isinstance(service.messages.failure, UnreadRecordError)
            self.exit_code = EXIT_NOT_READ if is_unread else EXIT_DISK_FAILED
            reactor.stop()

    def stop(self) -> Deferred[None]:
        """Fires when all is committed, told and closed."""
        self._is_stopping = True
        if self._watch.running:
            self._watch.stop()
        return self._service.stop()


def run(options: argparse.Namespace, formats: Sequence[Format] = FORMATS) -> int:
    """Runs the broker until a signal; returns the exit code.

    Args:
        options: as declared above.
        formats: of the records of the broker's state.
    """
    try:
        settings = parse_settings(options.settings)
        if options.namesrvAddr:
            settings["namesrvAddr"] = options.namesrvAddr
        environment = settings_of(KEY_BY_NAME, os.environ)
        config = load_broker_config(options.config, settings, environment)
    except (ConfigError, OSError, ValueError) as error:
        return refuse(str(error))
    if options.print_config:
        file = keys_of_file(options.config)
        print(with_sources(effective_properties(config), environment, file, settings), end="")
        return 0
    labels = {"node": config.ledger_self_id or config.broker_name, "group": config.broker_name}
    start_log(config.log_form, labels)
    use_private_files()
    use_all_descriptors()
    sys.setswitchinterval(_SWITCH_S)
    try:
        service = _Announced(config, options.json, formats)
    except (TlsSettingsError, ConfigError) as error:
        return refuse(str(error))
    return run_program(
        service,
        until_stdin_closes=options.until_stdin_closes,
        expected=(BrokerError, CommitLogError, LedgerError),
    )
