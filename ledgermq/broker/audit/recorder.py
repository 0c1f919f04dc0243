"""Recorder: the audit log of one broker, as its configuration says; begun and ended with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError, maybeDeferred

from ledgermq.audit.audit_file import AuditFile
from ledgermq.audit.audit_log import AuditLog
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.audit.changes import Tables
from ledgermq.broker.audit.watch import Watch
from ledgermq.broker.config.broker_config import NO_FILE, BrokerConfig
from ledgermq.dledger.store.disk_thread import DiskThread
from ledgermq.state.broker_state import BrokerState

# At a stop, what a disk has not taken by then is lost.
_CLOSE_S: Final = 3.0


class Recorder:
    """An audit log with its thread."""

    def __init__(
        self,
        config: BrokerConfig,
        path: Path,
        reactor: Any,
        state: BrokerState,
        rules: RulesTable | None,
        now_ms: Callable[[], int],
    ) -> None:
        """Writes nothing yet.

        Args:
            config: of the broker.
            path: of the file.
            reactor: that of the broker.
            state: that requests change.
            rules: that they change, too; None while access control is off.
            now_ms: wall clock.
        """
        self._reactor = reactor
        self._thread = DiskThread("audit")
        self.log = AuditLog(
            AuditFile(path, config.audit_file_bytes, config.audit_files),
            self._thread,
            reactor.callFromThread,
            clock_ms=lambda: reactor.seconds() * 1000.0,
            now_ms=now_ms,
            fixed={"broker": config.broker_name, "member": config.ledger_self_id},
        )
        self.watch = Watch(self.log, Tables(state, config, rules))
        state.on_made = self.watch.made
        if rules is not None:
            rules.on_edited = self.watch.rules_edited

    def close(self) -> Deferred[None]:
        """Fires when what waits is written, or a slow disk has had its time; never fails."""
        closed: Deferred[None] = maybeDeferred(self.log.close)
        closed.addTimeout(_CLOSE_S, self._reactor)

        def ended(result: Any) -> None:
            if result is None:
                self._thread.stop()

        # The thread of a disk that hangs ends with the process.
        closed.addErrback(lambda failure: failure.trap(TimeoutError))
        return closed.addBoth(ended)


def recorder_of(
    config: BrokerConfig,
    reactor: Any,
    state: BrokerState,
    rules: RulesTable | None,
    now_ms: Callable[[], int],
) -> Recorder | None:
    """Returns the recorder that a configuration asks for; None for none. For the arguments see
    Recorder.
    """
    if config.audit_file == NO_FILE:
        return None
    path = Path(config.audit_file).expanduser()
    return Recorder(config, path, reactor, state, rules, now_ms)
