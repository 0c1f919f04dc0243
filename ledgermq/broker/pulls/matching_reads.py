"""Reads of a queue that keep only the messages whose properties a SQL92 filter wants.

The message store matches by tags code, for which it need not read the message. Here messages are
read in small runs and looked at, up to a limit, so that one pull neither holds the reactor nor
comes back empty while there is more to look at. Source: `DefaultMessageStore.getMessage` with
`ExpressionMessageFilter.java`.
"""

from collections.abc import Callable
from typing import Final

from ledgermq.broker.selectors.filters import PropertyMatcher
from ledgermq.commitlog import GetMessageResult, GetMessageStatus
from ledgermq.dledger.errors import ColdDataError
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import RecordHead, decode_record_head

# Messages of one run, and looked at by one pull; upstream looks at 800 too.
_RUN_COUNT: Final = 32
_LOOKED_AT_MAX: Final = 800
_READ_BYTES_MAX: Final = 8 << 20
# Found bytes above which no further run is read; one run has 256 KiB at most, or one message.
_FOUND_BYTES_MAX: Final = 128 << 10

# Offset and count to what the store found there.
Read = Callable[[int, int], GetMessageResult[bytes]]


def _always() -> bool:
    return True


def read_matching(
    read: Read,
    offset: int,
    count_max: int,
    wants: PropertyMatcher,
    has_time: Callable[[], bool] = _always,
) -> GetMessageResult[bytes]:
    """Returns the wanted messages of a queue from an offset on, or why there are none.

    Args:
        read: reads a queue whatever the properties.
        offset: of the first message to look at.
        count_max: messages wanted.
        wants: whether the properties match.
        has_time: asked after each message that was looked at; False: that was the last.

    Returns:
        As the store does; NO_MATCHED_MESSAGE when messages were looked at and none is wanted. The
        next offset is behind the last message that was looked at.
    """
    result = read(offset, _RUN_COUNT)
    if result.status is not GetMessageStatus.FOUND:
        return result
    parts: list[bytes] = []
    found_bytes = read_bytes = 0
    next_offset, is_over = offset, False
    while result.status is GetMessageStatus.FOUND:
        next_offset = result.next_begin_offset
        read_bytes += result.bytes
        for record in result.parts:
            head = decode_record_head(record)
            if wants(_properties_of(head)):
                parts.append(record)
                found_bytes += len(record)
            is_over = len(parts) == count_max or not has_time()
            if is_over:
                next_offset = head.queue_offset + 1
                break
        if (
            is_over
            or found_bytes > _FOUND_BYTES_MAX
            or read_bytes > _READ_BYTES_MAX
            or next_offset - offset >= _LOOKED_AT_MAX
        ):
            break
        try:
            result = read(next_offset, _RUN_COUNT)
        except ColdDataError:
            # The next pull waits for it.
            break
    return GetMessageResult(
        GetMessageStatus.FOUND if parts else GetMessageStatus.NO_MATCHED_MESSAGE,
        next_offset,
        result.min_offset,
        result.max_offset,
        parts,
        len(parts),
        found_bytes,
        result.behind_bytes,
    )


def _properties_of(head: RecordHead) -> dict[str, str]:
    try:
        return decode_properties(head.properties)
    except RemoteProtocolError:
        # A client wrote them in another encoding: no name is known.
        return {}
