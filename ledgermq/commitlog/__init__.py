"""Messages on the ledger: records in, consume queues and key index out, committed data only.

`store.MessageStore` is the face; read its docstring first, then `dispatch.py`. The files on disk
are drawn in `layout.py`, what a crash may leave is told in `recovery.py`. No Twisted here.
"""

from ledgermq.commitlog.config import SCHEDULE_TOPIC, StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.dledger_commit_log import DLedgerCommitLog
from ledgermq.commitlog.encoding import OWN_TOPIC_PREFIX, RECORD_BYTES_MAX, AppendMessage
from ledgermq.commitlog.errors import (
    CommitLogError,
    DamagedFileError,
    DispatchError,
    FilesBehindError,
    KeyChainTooLongError,
    LeaderNotReadyError,
    LogOffsetError,
    MessageIllegalError,
    PlainLogThereError,
    SegmentLackingError,
    StoreInUseError,
    StoreLostError,
    StoreUnsafeError,
    UnreadRecordError,
)
from ledgermq.commitlog.flush import FlushJob
from ledgermq.commitlog.light_queues import (
    LIGHT_QUEUE_ID,
    OFFSET_DIGITS_MAX,
    OFFSETS_BYTES,
    is_light_queue,
    light_places,
    named_queues,
    without_offsets,
)
from ledgermq.commitlog.look_up import QueryResult
from ledgermq.commitlog.message_writer import (
    STATE_TOPIC,
    TERM_TOPIC,
    AppendResult,
    check_message,
    opening_record,
)
from ledgermq.commitlog.mixed_store import MixedLog, MixedMessageStore
from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.commitlog.plain_recovery import PlainReport
from ledgermq.commitlog.plain_store import PlainMessageStore
from ledgermq.commitlog.reading import GetMessageResult, GetMessageStatus
from ledgermq.commitlog.recovery import StoreReport
from ledgermq.commitlog.retention import CleanDecision, CleanReason, used_percent, used_ratio
from ledgermq.commitlog.rows import delay_level, may_be_delivery_time
from ledgermq.commitlog.run_loops import Run, read_run
from ledgermq.commitlog.store import MessageStore
from ledgermq.commitlog.store_access import find_open_to_others
from ledgermq.commitlog.store_lock import StoreLock

__all__ = [
    "LIGHT_QUEUE_ID",
    "OFFSETS_BYTES",
    "OFFSET_DIGITS_MAX",
    "OWN_TOPIC_PREFIX",
    "RECORD_BYTES_MAX",
    "SCHEDULE_TOPIC",
    "STATE_TOPIC",
    "TERM_TOPIC",
    "AppendMessage",
    "AppendResult",
    "CleanDecision",
    "CleanReason",
    "CommitLogError",
    "ConsumeQueue",
    "DLedgerCommitLog",
    "DamagedFileError",
    "DispatchError",
    "FilesBehindError",
    "FlushJob",
    "GetMessageResult",
    "GetMessageStatus",
    "KeyChainTooLongError",
    "LeaderNotReadyError",
    "LogOffsetError",
    "MessageIllegalError",
    "MessageStore",
    "MixedLog",
    "MixedMessageStore",
    "PlainCommitLog",
    "PlainLogThereError",
    "PlainMessageStore",
    "PlainReport",
    "QueryResult",
    "Run",
    "SegmentLackingError",
    "StoreConfig",
    "StoreInUseError",
    "StoreUnsafeError",
    "find_open_to_others",
    "StoreLostError",
    "StoreLock",
    "StoreReport",
    "UnreadRecordError",
    "check_message",
    "delay_level",
    "is_light_queue",
    "light_places",
    "may_be_delivery_time",
    "named_queues",
    "opening_record",
    "read_run",
    "used_percent",
    "used_ratio",
    "without_offsets",
]
