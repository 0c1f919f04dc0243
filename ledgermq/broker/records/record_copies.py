"""A stored record as a message that is stored once more: a delivery, the end of a transaction.

Pure. What the broker changes, place, flags or properties, its caller replaces.
"""

from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.record import Record
from ledgermq.protocol.sysflag import HOST_V6_MASK


def copy_of(record: Record) -> AppendMessage:
    """Returns the same message in the same queue; flags of addresses are set anew by the store."""
    return AppendMessage(
        record.topic,
        record.queue_id,
        record.flag,
        record.sys_flag & ~HOST_V6_MASK,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        0,
        record.body,
        record.properties,
    )
