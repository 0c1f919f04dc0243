"""How a real program (broker, name server) runs in its process: log, start, status lines, stop.

A program is a service with ``start()`` and ``stop()``, both returning a Deferred. SIGTERM and
Ctrl-C stop it in order, in the midst of its start too; a second signal does not shorten that. With
``until_stdin_closes`` the program also stops when its standard input ends, so that children of
``ledgermq up`` never outlive it, however it ends. Exit code 1 when the start fails or the service
reports a failure, 78 when the configuration is to blame. A service
manager that asks for it is told when the start is over, each status line, and that the reactor
turns (``supervisor.py``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall
from twisted.logger import FilteringLogObserver, Logger, globalLogBeginner
from twisted.python.failure import Failure

from ledgermq.cli.failure import EXIT_CONFIG, fail
from ledgermq.cli.supervisor import Supervisor
from ledgermq.logs.json_lines import json_observer
from ledgermq.logs.levels import PROCESS_LEVELS
from ledgermq.logs.lines import is_journal, log_observer
from ledgermq.logs.repeats import Repeats

_RETRIES: Final = "twisted.application._client_service"
_OURS: Final = "ledgermq"

_log = Logger()

# Twisted's reactor is a module that stands for an object: it has no usable static type.
reactor: Any = global_reactor
# Twisted measures delays on the wall clock; a clock that is set would start elections.
reactor.seconds = time.monotonic


# What it exits with when a disk that gave errors ended its work (EX_IOERR of sysexits.h): to be
# started again, and looked at by a person if that happens again and again.
EXIT_DISK_FAILED: Final = 74
# What it exits with when other members wrote what it does not read: to be started again helps only
# with another program.
EXIT_NOT_READ: Final = EXIT_CONFIG


# It reads the environment once; who starts this process has said all there.
_supervisor: Final = Supervisor(os.environ)


class Service(Protocol):
    """What a program runs."""

    @property
    def exit_code(self) -> int:
        """0, or what the program exits with because it can do no more."""
        ...

    def start(self) -> Deferred[Any]:
        """Fires when the program serves."""

    def stop(self) -> Deferred[Any]:
        """Fires when everything is closed and on disk."""


class _UntilClosed(TwistedProtocol):
    """Watches standard input for its end."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed

    def connectionLost(self, reason: Failure = Failure) -> None:  # type: ignore[assignment]
        """The other side of the pipe is gone."""
        self._closed()


def _watch_stdin(closed: Callable[[], None]) -> None:
    # The stubs of this module describe Windows.
    make: Any = StandardIO
    make(_UntilClosed(closed), stdout=os.open(os.devnull, os.O_WRONLY))


def start_log(form: str = "text", labels: Mapping[str, str] | None = None) -> None:
    """Writes log events to stderr, from the levels on that `PROCESS_LEVELS` says.

    SIGUSR1 has all that is said here written from debug on for a quarter of an hour; a second one
    ends that.

    Args:
        form: "text" for people, "json" for programs.
        labels: in each line of JSON.
    """
    # It tells each try to reach a peer that is down: a line a second that nobody reads.
    PROCESS_LEVELS.fix(_RETRIES, "warn")
    if form == "json":
        writer = json_observer(sys.stderr, labels or {})
    else:
        writer = log_observer(sys.stderr, tells_priority=is_journal(sys.stderr, os.environ))
    observer = FilteringLogObserver(Repeats(writer), [PROCESS_LEVELS])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    signal.signal(signal.SIGUSR1, lambda *_: reactor.callFromThread(_toggle_debug))


def _toggle_debug() -> None:
    level = PROCESS_LEVELS.toggle(_OURS)
    _log.info("level of {part} is {least} (SIGUSR1)", part=_OURS, least=level)


def print_line(text: str, event: dict[str, object], as_json: bool) -> None:
    """Prints one status line, for a person or for a program, and flushes it."""
    _supervisor.tell_status(text)
    line = json.dumps(event, sort_keys=True) if as_json else text
    try:
        print(line, flush=True)
    except BrokenPipeError:
        # Nobody reads our status any more; serving goes on.
        sys.stdout = open(os.devnull, "w")


def tell_starting(text: str, wait_s: float) -> None:
    """Tells a service manager how far the start is; the next word comes within `wait_s`."""
    _supervisor.tell_starting(text, wait_s)


def run_program(
    service: Service, *, until_stdin_closes: bool, expected: tuple[type[Exception], ...]
) -> int:
    """Runs a service until a signal, the end of standard input, or a failed start.

    Args:
        service: what runs.
        until_stdin_closes: whether the end of standard input stops it.
        expected: errors whose text says all that a person needs; others show where they came from.

    Returns:
        The exit code: that of the service when it has one, which says why it ended even where its
        stop fails, too; else 1 when the start or the stop failed, and 0 after an orderly stop.
    """
    outcome = {"code": 0, "ends": False}

    def failed(failure: Failure) -> None:
        outcome["code"] = fail(failure.getErrorMessage() or repr(failure.value))
        if not isinstance(failure.value, (OSError, ValueError, CannotListenError, *expected)):
            failure.printTraceback(file=sys.stderr)
        if reactor.running:
            reactor.stop()

    def begin() -> None:
        maybeDeferred(service.start).addCallbacks(started, failed)

    def started(_: object) -> None:
        if outcome["ends"]:
            return
        _supervisor.tell_ready()
        if _supervisor.watchdog_s is not None:
            LoopingCall(_supervisor.tell_turning).start(_supervisor.watchdog_s / 2)

    def end() -> Deferred[Any]:
        outcome["ends"] = True
        _supervisor.tell_stopping()
        return maybeDeferred(service.stop).addErrback(failed)

    def close() -> None:
        if reactor.running:
            reactor.callLater(0, stop_once)

    def stop_once() -> None:
        if reactor.running:
            reactor.stop()

    reactor.callWhenRunning(begin)
    reactor.addSystemEventTrigger("before", "shutdown", end)
    if until_stdin_closes:
        _watch_stdin(close)
    reactor.run()
    return service.exit_code or outcome["code"]
