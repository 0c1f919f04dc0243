"""Transactions: half messages, their end, and the question to a producer that forgot the end."""

from ledgermq.broker import names
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    decode_properties,
    format_properties,
)
from ledgermq.protocol.sysflag import TRANSACTION_MASK


def half_message(message: AppendMessage) -> AppendMessage:
    """Returns a message as it waits for the end of its transaction: visible to nobody.

    Source: `TransactionalMessageBridge.parseHalfMessageInner`.
    """
    properties = decode_properties(message.properties)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QUEUE_ID] = str(message.queue_id)
    return message._replace(
        topic=names.HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~TRANSACTION_MASK,
        properties=format_properties(properties).encode(),
    )
