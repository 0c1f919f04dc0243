"""The bits of a message's sysFlag and of a pull request's sysFlag.

Plain ints, because an unknown bit is data: it is stored and forwarded as it came. The broker itself
sets two bits only, the address families of the two hosts, just before a record is encoded.
"""

from typing import Final

# --- message ---
# The body is compressed; which way, COMPRESSION_MASK says.
COMPRESSED: Final = 0x1
# The topic has the filter type MULTI_TAG; nothing reads it any more.
MULTI_TAGS: Final = 0x2
# Two bits: what the message is to a transaction.
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
# The address of the host takes 16 bytes in the record instead of 4.
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOST_V6_MASK: Final = BORN_HOST_V6 | STORE_HOST_V6
# 5.x: the record holds several messages, when both are set.
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
INNER_BATCH_MASK: Final = NEED_UNWRAP | INNER_BATCH
# Bits 8-10 name the codec of a compressed body; clients before 4.9.4 leave them zero for zlib.
COMPRESSION_MASK: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

# --- pull request ---
PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

assert TRANSACTION_MASK == TRANSACTION_PREPARED | TRANSACTION_COMMIT == TRANSACTION_ROLLBACK
assert COMPRESSION_MASK & COMPRESSION_ZLIB == COMPRESSION_ZLIB


def is_queued(sys_flag: int) -> bool:
    """Tell whether a record takes a queue offset and a consume queue unit.

    Source: DLedgerCommitLog.asyncPutMessage and CommitLogDispatcherBuildConsumeQueue of 4.9.3:
    transaction types none and commit do, prepared and rollback do not.
    """
    return not sys_flag & TRANSACTION_PREPARED
