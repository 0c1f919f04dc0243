"""The files of a broker without a ledger: upstream's plain commit log, and what derives from it.

Which kind of log a broker has is decided by what lies in its directory, and by the configuration
where nothing does: a log is never left behind for another one.

The commands of the broker's state stand in this log as they do in a ledger, and state files are
what a start reads first. A table that were changed directly and kept in its file alone would fall
behind the log with a crash: upstream writes these files every few seconds. Delayed messages and
ends of transactions of that time would be delivered again, for which of them the log holds is
counted from the plan before them (`state/queue_progress.py`), and an offset that was answered as
committed, or a topic whose messages are in the log, would be gone.
"""

import os
from typing import Final

from twisted.logger import Logger

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.storage.ledger_storage import LedgerStorage
from ledgermq.broker.storage.storage import Storage, store_config
from ledgermq.commitlog import (
    TERM_TOPIC,
    CommitLogError,
    MessageStore,
    PlainCommitLog,
    PlainMessageStore,
)
from ledgermq.dledger.store import FileSystem, Segments
from ledgermq.protocol.record import decode_record_head
from ledgermq.state.errors import ConfigError

_READ_BYTES: Final = 1 << 20

_log = Logger()


def has_plain_log(config: BrokerConfig) -> bool:
    """Tells whether a broker works on a plain commit log.

    Raises:
        ConfigError: a slave is to be started on a ledger.
    """
    if config.is_group_member:
        return False
    ledger = os.path.join(config.store_root, f"dledger-{config.ledger_self_id}", "data")
    if _has_files(ledger):
        if config.broker_role == "SLAVE":
            allowed = f"a master's role, as {config.store_root} holds a ledger"
            raise ConfigError("brokerRole", "SLAVE", allowed)
        return False
    return config.wants_plain_log or _has_files(str(config.commit_log_path))


def _has_files(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except FileNotFoundError:
        return False


class PlainStorage(Storage):
    """The files of a broker on a plain commit log."""

    def _new_messages(self, file_system: FileSystem) -> MessageStore:
        config = self._config
        # What is damaged in the log, which nobody repairs; None while nothing was found.
        self._damage: str | None = None
        self.log = PlainCommitLog(file_system, str(config.commit_log_path), config.segment_bytes)
        self._plain_messages = PlainMessageStore(
            store_config(config), self.log, file_system, self._now_ms
        )
        return self._plain_messages

    @property
    def _store_name(self) -> str:
        # A broker may get another name, or become a slave.
        return "plain"

    def _open_log(self) -> str:
        report = self.log.open(
            durable_offset=self._plain_messages.durable_offset, progress=self.opening
        )
        if report.cut_reason is not None:
            _log.warn(
                "commit log: cut a torn tail at {offset}: {reason}; copy: {copy}",
                offset=report.end_offset,
                reason=report.cut_reason,
                copy=report.copy,
            )
        self._state.progress.attach_plain(
            self._deliveries_kept, lambda: self.messages.dispatched_index + 1
        )
        return f"commit log {report.first_offset} to {report.end_offset}"

    def _deliveries_kept(self, place: int, total: int, end: int) -> tuple[int, bool]:
        """Counts the records behind a plan, up to the one that a start of this broker wrote."""
        log, offset, count = self.log, place, -1
        while offset < end:
            try:
                data, walk = log.records(offset, _READ_BYTES)
            except (CommitLogError, IndexError):
                # So old that retention took it: it was decided long ago.
                return total, True
            for start in walk.starts:
                if start >= end:
                    break
                if decode_record_head(data, start - offset).topic == TERM_TOPIC.encode():
                    return max(count, 0), True
                count += 1
                if count == total:
                    return total, True
            if walk.next_offset == offset:
                break
            offset = walk.next_offset
        return max(count, 0), False

    def distrust(self, error: Exception) -> bool:
        if super().distrust(error):
            return True
        # Nobody has another copy of the log: whoever looks after this broker is told.
        if str(error) != self._damage:
            self._damage = str(error)
            _log.error("commit log: {error}; no other copy is known", error=error)
        return False

    @property
    def log_files(self) -> Segments:
        return self.log.files

    def repair_reason(self) -> str | None:
        return self._damage

    def _close_log(self) -> None:
        self.log.close()

    def _abandon_log(self) -> None:
        self.log.close()


def storage_of(config: BrokerConfig) -> type[PlainStorage | LedgerStorage]:
    """Returns the kind of storage that a broker has.

    Raises:
        ConfigError: see has_plain_log.
    """
    return PlainStorage if has_plain_log(config) else LedgerStorage
