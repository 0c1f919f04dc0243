"""Settings and limits of the message store; the key of broker.conf stands above each field."""

import resource
from dataclasses import dataclass, field
from typing import Final

# Delay levels as messageDelayLevel gives them by default, in ms: level 1 is the first.
DEFAULT_DELAYS_MS = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600)
    + (1200, 1800, 3600, 7200)
)
# The topic in which delayed messages wait.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# Open files of queues and key index, the least and the most. A flush may have as many again.
_FILES_MIN: Final = 128
_FILES_MAX: Final = 8_000


def files_max_of(descriptors_max: int) -> int:
    """Return how many files to keep open in a process that may have so many descriptors.

    A half of them is for files. With more queues in use than files open, a flush opens the others.

    Args:
        descriptors_max: -1 for no limit.
    """
    if descriptors_max < 0:
        return _FILES_MAX
    return max(_FILES_MIN, min(descriptors_max // 4, _FILES_MAX))


def _files_max() -> int:
    return files_max_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


@dataclass(slots=True, frozen=True, kw_only=True)
class StoreConfig:
    """How a store is laid out, what it accepts, and when it forgets."""

    # storePathRootDir
    root: str
    # mappedFileSizeConsumeQueue: bytes of a consume queue segment, rounded up to whole units.
    queue_segment_bytes: int = 6_000_000
    # maxHashSlotNum, maxIndexNum: size of a key index file.
    index_slot_count: int = 5_000_000
    index_entry_count: int = 20_000_000
    # messageIndexEnable: whether keys are indexed at all.
    index_enabled: bool = True
    # maxMessageSize: the largest body, and the largest body of a batch.
    body_bytes_max: int = 4_194_304
    # maxTransferBytesOnMessageInMemory, maxTransferCountOnMessageInMemory
    memory_bytes_max: int = 262_144
    memory_count_max: int = 32
    # maxTransferBytesOnMessageInDisk, maxTransferCountOnMessageInDisk
    disk_bytes_max: int = 65_536
    disk_count_max: int = 8
    # accessMessageInMemoryMaxRatio, percent of machine_memory_bytes: older records count as read
    # from disk.
    memory_ratio_percent: int = 40
    machine_memory_bytes: int = 24 << 30
    # maxMsgsNumBatch: the most records that a query by key returns.
    query_count_max: int = 64
    # messageDelayLevel, in ms.
    delays_ms: tuple[int, ...] = DEFAULT_DELAYS_MS
    # deleteWhen: local hours in which expired segments go.
    delete_hours: tuple[int, ...] = (4,)
    # enableLmq and enableMultiDispatch: whether messages are put into the light queues they name.
    has_light_queues: bool = False
    # fileReservedTime, hours.
    reserved_hours: int = 72
    # cleanFileForciblyEnable: whether a full disk makes age irrelevant.
    force_clean: bool = True
    # diskMaxUsedSpaceRatio, and the two levels above it; percent.
    disk_clean_percent: int = 75
    disk_force_percent: int = 85
    disk_full_percent: int = 90
    # Files of queues and key index kept open, for readers and for the next flush.
    open_files_max: int = field(default_factory=_files_max)
    # Records of own proposals kept until they commit; beyond that they are read back from the log.
    pending_records_max: int = 200_000
    # A flush is due after this time, or after this many records.
    flush_interval_ms: int = 10_000
    flush_records: int = 250_000

    def __post_init__(self) -> None:
        for name in ("queue_segment_bytes", "index_slot_count", "body_bytes_max", "open_files_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be positive")
        if self.index_entry_count < 2:
            raise ValueError("index_entry_count must be at least 2: entry 0 is never used")
        if not self.disk_clean_percent <= self.disk_force_percent <= self.disk_full_percent:
            raise ValueError("disk percentages must rise: clean, force, full")
