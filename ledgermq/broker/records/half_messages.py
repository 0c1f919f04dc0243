"""Half messages as records: what a transaction stores, from the first half to its end.

Pure. Source: `TransactionalMessageBridge.java`, `EndTransactionProcessor.java`.
"""

from hashlib import sha256
from typing import Final, NamedTuple

from ledgermq.broker.records.delayed_messages import Target, target_of
from ledgermq.broker.records.record_copies import copy_of
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SENDER_ACCOUNT,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    WAIT_STORE_MSG_OK,
    decode_properties,
    format_properties,
)
from ledgermq.protocol.record import Host, Record, decode_record
from ledgermq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK
from ledgermq.state import names

# Its offsets are upstream's place in the half queue and in that of the ends.
HALF_GROUP: Final = "CID_RMQ_SYS_TRANS"
# Marks a record of ends: the half message may be removed from the walk.
_ENDED_TAG: Final = "d"
_MARK_CHARS: Final = 32
_BROKERS_PROPERTIES: Final = (
    SENDER_ACCOUNT,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
)


class HalfMessage(NamedTuple):
    """A half message and what its properties say about it."""

    record: Record
    properties: dict[str, str]
    target: Target
    # How often its producer was asked.
    check_count: int
    # How long its producer wants not to be asked, None when it did not say.
    immunity_ms: int | None
    # Offset that its producer knows it by, when it is a copy from its time of immunity.
    prepared_offset: int | None
    # Mark of the account that sent it; None when nobody had to sign.
    account_mark: str | None

    @property
    def is_copy(self) -> bool:
        """True when a broker stored it again."""
        return self.check_count > 0 or self.prepared_offset is not None


def account_mark(access_key: str) -> str:
    """Returns what a half message says of the account that sent it: as long for every account, and
    of characters that properties may have.
    """
    return sha256(access_key.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_CHARS]


def half_message(message: AppendMessage, account: str | None = None) -> AppendMessage:
    """Returns a message as it waits for the end of its transaction: visible to nobody.

    Args:
        message: as it was sent.
        account: access key that signed it; None where nobody has to sign.
    """
    properties = decode_properties(message.properties)
    # Only a broker says that.
    for name in _BROKERS_PROPERTIES:
        properties.pop(name, None)
    if account is not None:
        properties[SENDER_ACCOUNT] = account_mark(account)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QUEUE_ID] = str(message.queue_id)
    return message._replace(
        topic=names.HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=format_properties(properties).encode(),
    )


def half_from(raw: bytes) -> HalfMessage | None:
    """Returns the half message in a record; None when it is not one that can ever be committed."""
    try:
        record = decode_record(raw)
        properties = decode_properties(record.properties)
    except RemoteProtocolError:
        return None
    target = target_of(properties)
    if target is None or record.topic != names.HALF_TOPIC:
        return None
    immunity_s = _number(properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS))
    return HalfMessage(
        record,
        properties,
        target,
        _number(properties.get(TRANSACTION_CHECK_TIMES)) or 0,
        None if immunity_s is None else immunity_s * 1000,
        _number(properties.get(TRANSACTION_PREPARED_QUEUE_OFFSET)),
        properties.get(SENDER_ACCOUNT),
    )


def committed_message(half: HalfMessage) -> AppendMessage:
    """Returns what the real topic gets when a transaction is committed."""
    record = half.record
    message = copy_of(record)
    if half.account_mark is not None:
        properties = {**half.properties}
        del properties[SENDER_ACCOUNT]
        message = message._replace(properties=format_properties(properties).encode())
    return message._replace(
        topic=half.target.topic,
        queue_id=half.target.queue_id,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
        prepared_transaction_offset=record.physical_offset,
    )


def renewed(half: HalfMessage, *, is_asked: bool) -> AppendMessage:
    """Returns the copy of a half message at the end of its queue.

    Args:
        is_asked: its producer is asked once more; else it stays in its time of immunity, and its
            producer goes on to know it by its first offset.
    """
    properties = dict(half.properties)
    if is_asked:
        properties[TRANSACTION_CHECK_TIMES] = str(half.check_count + 1)
    elif half.prepared_offset is None:
        properties[TRANSACTION_PREPARED_QUEUE_OFFSET] = str(half.record.queue_offset)
    return copy_of(half.record)._replace(properties=format_properties(properties).encode())


def set_aside(half: HalfMessage, store_host: Host) -> AppendMessage:
    """Returns a half message for the topic of those that nobody ends."""
    return copy_of(half.record)._replace(topic=names.HALF_EXPIRED_TOPIC, store_host=store_host)


def resumed(record: Record) -> AppendMessage | None:
    """Returns the half message for one that was put aside, with no check counted; None for any
    other record.
    """
    if record.topic != names.HALF_EXPIRED_TOPIC:
        return None
    properties = decode_properties(record.properties)
    properties[TRANSACTION_CHECK_TIMES] = "0"
    return copy_of(record)._replace(
        topic=names.HALF_TOPIC, queue_id=0, properties=format_properties(properties).encode()
    )


def op_message(half_offset: int, store_host: Host, now_ms: int) -> AppendMessage:
    """Returns the record that says that a half message has ended."""
    properties = format_properties({TAGS: _ENDED_TAG, WAIT_STORE_MSG_OK: "true"}).encode()
    return AppendMessage(
        names.HALF_DONE_TOPIC,
        0,
        0,
        0,
        now_ms,
        store_host,
        store_host,
        0,
        0,
        b"%d" % half_offset,
        properties,
    )


def ended_offsets(raw: bytes) -> tuple[int, ...]:
    """Returns the half offsets in a record of ends; brokers of 5.x write several into one."""
    try:
        record = decode_record(raw)
        tag = decode_properties(record.properties).get(TAGS)
    except RemoteProtocolError:
        return ()
    if tag != _ENDED_TAG:
        return ()
    parts = record.body.decode("ascii", "replace").split(",")
    return tuple(number for part in parts if (number := _number(part)) is not None)


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return None
    return int(text)
