"""The files of a broker on a ledger: entries and index, vote, what is under repair."""

import os

from twisted.logger import Logger

from ledgermq.broker.storage.membership_check import (
    check_membership,
    ledger_directory,
    member_vote_file,
)
from ledgermq.broker.storage.storage import Storage, store_config
from ledgermq.commitlog import (
    MessageStore,
    MixedLog,
    MixedMessageStore,
    PlainCommitLog,
    PlainLogThereError,
    StoreLostError,
)
from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.store import (
    DLedgerMmapFileStore,
    FileSystem,
    RecoveryReport,
    Segments,
)
from ledgermq.dledger.store.errors import CorruptStoreError, DiskFullError
from ledgermq.dledger.store.repair_mark import RepairMark
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.record import PHYSICAL_OFFSET_OFFSET

_log = Logger()


class LedgerStorage(Storage):
    """The files of a broker on a ledger."""

    def _new_messages(self, file_system: FileSystem) -> MessageStore:
        config = self._config
        self._file_system = file_system
        self.codec = EntryCodec(crc32c, PHYSICAL_OFFSET_OFFSET)
        directory = ledger_directory(config)
        self.ledger_store = DLedgerMmapFileStore(
            file_system,
            directory,
            config.segment_bytes,
            config.index_segment_bytes,
            self.codec,
        )
        self.ledger_store.mode.has_reader = True
        self.vote_file = member_vote_file(config, file_system)
        self.repair_mark = RepairMark(file_system, directory)
        self._has_peers = len(config.ledger_peers) > 1
        # What is damaged in the log of a member without peers; None while nothing was found.
        self._damage: str | None = None
        # The plain part of a mixed store; None in any other.
        self._mixed_log: MixedLog | None = None
        self._plain_names = file_system.names(str(config.commit_log_path))
        if self._plain_names and file_system.names(os.path.join(directory, "data")):
            return self._new_mixed_messages(file_system)
        return MessageStore(
            store_config(config),
            self.ledger_store,
            file_system,
            self._now_ms,
            self.ledger_store.data.read,
            segment_at=self.ledger_store.data.segment_at,
            mode=self.ledger_store.mode,
        )

    def _new_mixed_messages(self, file_system: FileSystem) -> MessageStore:
        config = self._config
        directory, mode = str(config.commit_log_path), self.ledger_store.mode
        plain = PlainCommitLog(file_system, directory, config.segment_bytes, mode)
        divided_offset = int(self._plain_names[-1]) + config.segment_bytes
        log = MixedLog(plain, self.ledger_store, self.ledger_store.data, divided_offset)
        self._mixed_log = log
        return MixedMessageStore(store_config(config), log, file_system, self._now_ms)

    @property
    def _store_name(self) -> str:
        return f"{self._config.ledger_group}/{self._config.ledger_self_id}"

    def _open_log(self) -> str:
        if self._plain_names and self._mixed_log is None:
            root = str(self._config.store_root)
            raise PlainLogThereError(str(self._config.commit_log_path), root)
        check_membership(self._config, self._file_system)
        ledger = self._open_ledger()
        if self._mixed_log is not None:
            self._mixed_log.plain.open(progress=self.opening)
            self._mixed_log.check()
        if ledger.cut_reason is not None:
            _log.warn(
                "ledger: cut a torn tail at {position}: {reason}; copies: {copies}",
                position=ledger.end_position,
                reason=ledger.cut_reason,
                copies=", ".join(ledger.copies),
            )
        self._state.progress.attach(
            self.ledger_store.term_at, lambda: self.messages.dispatched_index + 1
        )
        return f"entries {ledger.first_index} to {ledger.last_index}"

    def _open_ledger(self) -> RecoveryReport:
        """Opens the log; one that lost entries is cut, and its member recovers from the others.

        Raises:
            CorruptStoreError: it lost entries, and there are no others; nothing was changed.
        """
        repair = self.repair_mark.read()
        damages: list[str] = []

        def note(error: CorruptStoreError) -> None:
            damages.append(str(error))
            self.damage_count += 1
            self.repair_mark.begin_recovery(str(error))
            _log.warn("ledger is damaged, recovers from its peers: {reason}", reason=str(error))

        report = self.ledger_store.open(
            verify_all=repair is not None,
            on_damage=note if self._has_peers else None,
            progress=self.opening,
        )
        if repair is not None and not repair.is_recovering and not damages:
            self.repair_mark.clear()
        return report

    def distrust(self, error: Exception) -> bool:
        if super().distrust(error):
            return True
        if not self._has_peers:
            # No other copy is known: the rest is served.
            if str(error) != self._damage:
                self._damage = str(error)
                _log.error("ledger: {error}; no other copy is known", error=error)
            return False
        try:
            self.repair_mark.suspect(str(error))
        except (OSError, DiskFullError) as reason:
            # Whoever calls stops the broker, come what may.
            _log.error("damage could not be noted: {reason}", reason=str(reason))
        return True

    def check_held(self) -> None:
        try:
            super().check_held()
        except StoreLostError as error:
            # Not even the last sync of a stop writes to what is there now.
            self.ledger_store.failure = error
            raise

    @property
    def log_files(self) -> Segments:
        return self.ledger_store.data

    def repair_reason(self) -> str | None:
        repair = self.repair_mark.read()
        return repair.reason if repair is not None else self._damage

    def _close_log(self) -> None:
        self.ledger_store.close()
        if self._mixed_log is not None:
            self._mixed_log.plain.close()

    def _abandon_log(self) -> None:
        self.ledger_store.abandon()
        if self._mixed_log is not None:
            self._mixed_log.plain.close()
