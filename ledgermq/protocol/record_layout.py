"""The record's layout, declared: the second opinion that tests and tools compare `record.py` with.

Forty times slower than `record.py` and never on the way of a message.
"""

from typing import Final

from construct import (
    Bytes,
    Const,
    GreedyBytes,
    IfThenElse,
    Int8ub,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    Prefixed,
    Struct,
    this,
)

from ledgermq.protocol.record import RECORD_MAGIC_V2
from ledgermq.protocol.sysflag import BORN_HOST_V6, STORE_HOST_V6


def _host(bit: int) -> Struct:
    return Struct(
        "address" / IfThenElse(this._.sys_flag & bit, Bytes(16), Bytes(4)), "port" / Int32ub
    )


# Names as in `record.Record`; a host is a struct of address and port.
RECORD_LAYOUT: Final = Struct(
    "size_bytes" / Int32sb,
    "magic" / Int32ub,
    "body_crc" / Int32ub,
    "queue_id" / Int32sb,
    "flag" / Int32sb,
    "queue_offset" / Int64sb,
    "physical_offset" / Int64sb,
    "sys_flag" / Int32sb,
    "born_timestamp" / Int64sb,
    "born_host" / _host(BORN_HOST_V6),
    "store_timestamp" / Int64sb,
    "store_host" / _host(STORE_HOST_V6),
    "reconsume_times" / Int32sb,
    "prepared_transaction_offset" / Int64sb,
    "body" / Prefixed(Int32sb, GreedyBytes),
    "topic"
    / IfThenElse(
        this.magic == RECORD_MAGIC_V2,
        Prefixed(Int16ub, GreedyBytes),
        Prefixed(Int8ub, GreedyBytes),
    ),
    "properties" / Prefixed(Int16sb, GreedyBytes),
)
BATCH_ELEMENT_LAYOUT: Final = Struct(
    "size_bytes" / Int32sb,
    "magic" / Const(0, Int32sb),
    "body_crc" / Const(0, Int32sb),
    "flag" / Int32sb,
    "body" / Prefixed(Int32sb, GreedyBytes),
    "properties" / Prefixed(Int16sb, GreedyBytes),
)
