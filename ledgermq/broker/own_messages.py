"""Messages that the broker writes for itself: records of its state. Pure."""

from ledgermq.commitlog import STATE_TOPIC, AppendMessage
from ledgermq.protocol.record import Host
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED


def state_message(body: bytes, store_host: Host, now_ms: int) -> AppendMessage:
    """Returns a record of the broker's state, which takes no place in a queue."""
    return AppendMessage(
        STATE_TOPIC, 0, 0, TRANSACTION_PREPARED, now_ms, store_host, store_host, 0, 0, body, b""
    )
