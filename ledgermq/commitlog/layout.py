"""Every structure on disk above the ledger, drawn and sized. All integers are big-endian.

Consume queue unit, 20 bytes; unit n stands at byte 20 * n of its queue (ConsumeQueue.java):

    0   8  physical offset of the record
    8   4  size of the record
    12  8  tags code

A queue whose first unit is not 0 begins with pre-blank units: 0, 0x7FFFFFFF, 0.

Key index file: header, slots, entries (IndexHeader.java, IndexFile.java):

    0   8  begin timestamp: store time of the first record
    8   8  end timestamp: of the last
    16  8  begin physical offset
    24  8  end physical offset
    32  4  slots in use
    36  4  number of the next entry; entries count from 1
    40  4 for each slot: number of the newest entry of its chain, 0 for none
        20 for each entry, number 0 is never used:
            4 hash of the key, not negative
            8 physical offset
            4 seconds since the begin timestamp
            4 number of the next older entry of the chain

Store checkpoint, 4096 bytes (StoreCheckpoint.java):

    0   8  store time up to which records are dispatched
    8   8  store time up to which consume queues are complete
    16  8  end timestamp of the last full key index file
"""

from struct import Struct
from typing import Final

# 8 physical_offset, 4 size_bytes, 8 tags_code
QUEUE_UNIT: Final = Struct(">qiq")
QUEUE_UNIT_BYTES: Final = 20
assert QUEUE_UNIT.size == QUEUE_UNIT_BYTES
# Size in a unit that stands for no record.
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = QUEUE_UNIT.pack(0, PRE_BLANK_SIZE, 0)

# 8 begin_timestamp, 8 end_timestamp, 8 begin_physical_offset, 8 end_physical_offset,
# 4 slots_used, 4 next_number
INDEX_HEADER: Final = Struct(">qqqqii")
INDEX_HEADER_BYTES: Final = 40
assert INDEX_HEADER.size == INDEX_HEADER_BYTES
INDEX_SLOT: Final = Struct(">i")
INDEX_SLOT_BYTES: Final = 4
assert INDEX_SLOT.size == INDEX_SLOT_BYTES
# 4 hash, 8 physical_offset, 4 seconds, 4 previous
INDEX_ENTRY: Final = Struct(">iqii")
INDEX_ENTRY_BYTES: Final = 20
assert INDEX_ENTRY.size == INDEX_ENTRY_BYTES

# 8 physical_timestamp, 8 logical_timestamp, 8 index_timestamp
STORE_CHECKPOINT: Final = Struct(">qqq")
STORE_CHECKPOINT_BYTES: Final = 4096
assert STORE_CHECKPOINT.size == 24

# Decimal digits of a key index file's name: local time down to milliseconds.
INDEX_NAME_DIGITS: Final = 17


def index_file_bytes(slot_count: int, entry_count: int) -> int:
    """Return the size of a key index file."""
    return INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slot_count + INDEX_ENTRY_BYTES * entry_count


# The default sizes of upstream, which many tools know by heart.
assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040
