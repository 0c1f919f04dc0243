"""The property block of a message: names, text to dict and back, and the quick look of dispatch.

    name 0x01 value 0x02 name 0x01 value ...        UTF-8, at most 32,767 bytes

Parsing takes what every client of RocketMQ writes: with or without a last 0x02; an element without
0x01, with an empty name or an empty value is no property; of two with one name the later wins. The
order of the elements has no meaning.
Source: MessageDecoder.string2messageProperties and messageProperties2String of 4.9.3.
"""

from collections.abc import Mapping
from typing import Final

from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
# The length stands in an i16 of the record.
PROPERTIES_BYTES_MAX: Final = 32767

# Different keys of one message; upstream has no limit but the bytes above, which hold 16,000. Each
# takes 20 bytes of the key index and is hashed by every member when the message is stored, and
# again each time that the log is looked through for flipped bits, where its sender spent two bytes.
# Messages have a handful; a list of a hundred order numbers still passes.
KEYS_COUNT_MAX: Final = 128
KEY_SEPARATOR: Final = " "

# The names that the broker or a client reads; a user may set any other. Source: MessageConst.java.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT_STORE_MSG_OK: Final = "WAIT"
DELAY_TIME_LEVEL: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_SWITCH: Final = "TRACE_ON"
UNIQUE_KEY: Final = "UNIQ_KEY"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
# Our own: a half message has it while it waits, and no consumer sees it.
SENDER_ACCOUNT: Final = "LEDGERMQ_ACCOUNT"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
# How many messages a record of a batch queue of 5.x holds.
INNER_NUM: Final = "INNER_NUM"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
# 5.x: the queue key of a FIFO message, and when a timer message is to be delivered.
SHARDING_KEY: Final = "__SHARDINGKEY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMERS: Final = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
# Of one delivery, not of the message: what is sent anew does not take them along.
OF_A_DELIVERY: Final = frozenset(
    {
        WAIT_STORE_MSG_OK,
        DELAY_TIME_LEVEL,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TRANSACTION_PREPARED,
        PRODUCER_GROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        ORIGIN_MESSAGE_ID,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        MSG_REGION,
        TRACE_SWITCH,
        CONSUME_START_TIME,
        TRANSACTION_PREPARED_QUEUE_OFFSET,
        TRANSACTION_CHECK_TIMES,
        CHECK_IMMUNITY_TIME_IN_SECONDS,
        CLUSTER,
        INNER_MULTI_DISPATCH,
        INNER_MULTI_QUEUE_OFFSET,
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
    }
)
# Our own, of a message that was sent again from the dead letters: which of them it was. And of a
# note among the dead letters: which of them was dropped.
RESENT: Final = "LEDGERMQ_RESENT"
DROPPED: Final = "LEDGERMQ_DROPPED"


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties in a text; what is malformed in it is left out, as Java does."""
    properties: dict[str, str] = {}
    for element in text.split(PROPERTY_SEPARATOR):
        name, _, value = element.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """Return the properties in the UTF-8 bytes of a record or a batch element.

    Raises:
        RemoteProtocolError: the bytes are not UTF-8.
    """
    try:
        return parse_properties(str(data, "utf-8"))
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("properties", bytes(data[:40]), "UTF-8") from error


def decode_any_properties(data: bytes) -> dict[str, str]:
    """Return the properties in the bytes of a record, also where these are not UTF-8.

    What is not stands for its bytes, which `encode_any_properties` gives back.
    """
    return parse_properties(data.decode("utf-8", "surrogateescape"))


def encode_any_properties(properties: Mapping[str, str]) -> bytes:
    """Return the bytes of properties that `decode_any_properties` gave, with others among them.

    Raises:
        LocalProtocolError: as format_properties.
    """
    return format_properties(properties).encode("utf-8", "surrogateescape")


def format_properties(properties: Mapping[str, str]) -> str:
    """Return the text of some properties, without a last separator, as 4.9.x writes it.

    Raises:
        LocalProtocolError: a name or value is empty or holds a separator, so it could not be read.
    """
    elements = []
    for name, value in properties.items():
        element = f"{name}{NAME_VALUE_SEPARATOR}{value}"
        if not name or not value or PROPERTY_SEPARATOR in element or NAME_VALUE_SEPARATOR in name:
            raise LocalProtocolError("property", element, "name and value without 0x01 and 0x02")
        elements.append(element)
    return PROPERTY_SEPARATOR.join(elements)


def count_keys(keys: str) -> int:
    """Return how many keys there are in the value of KEYS, those that are the same counted once."""
    return len(set(keys.split(KEY_SEPARATOR)) - {""})


def find_property(properties: bytes, name: bytes) -> bytes:
    """Return the value of a property in an encoded block, or b"" when it has none.

    The same answer as decode_properties(...).get(name), without decoding: for dispatch, which looks
    for three names in every record.
    """
    mark = b"\x02" + name + b"\x01"
    start = properties.rfind(mark)
    # The block's first element has no separator before it.
    if start < 0 and not properties.startswith(mark[1:]):
        return b""
    value_start = start + len(mark)
    value = properties[value_start : _element_end(properties, value_start)]
    if value or start < 0:
        return value
    # Empty values count as none, and there may be thousands of them. Those of other names are
    # passed over without a look at each: a block may be full of them for every name that is sought.
    parts = (b"\x02" + properties).split(mark)
    for part in parts[:0:-1]:
        if part and not part.startswith(b"\x02"):
            return part[: _element_end(part, 0)]
    return b""


def _element_end(properties: bytes, start: int) -> int:
    end = properties.find(b"\x02", start)
    return len(properties) if end < 0 else end
