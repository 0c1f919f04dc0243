"""The two ids of a message: the one that tells where it lies, and the one its producer made.

Offset message id, upper-case hex, 32 or 56 characters:

    4 or 16 store host address, 4 port, 8 physical_offset

Unique id (property UNIQ_KEY), upper-case hex, 32 or 56 characters:

    4 or 16 client address, 2 process id, 4 instance, 4 ms since the first of the month, 2 counter

The broker treats a unique id as opaque text; only a client makes and reads one.
Source: MessageDecoder.createMessageId and MessageClientIDSetter of 4.9.3.
"""

import datetime
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ledgermq.protocol.errors import RemoteProtocolError

# Characters of an id with an IPv4 and with an IPv6 address.
ID_V4_CHARS: Final = 32
ID_V6_CHARS: Final = 56

_PORT_AND_OFFSET: Final = Struct(">Iq")  # 4 port, 8 physical_offset
_PROCESS: Final = Struct(">HI")  # 2 process id, 4 instance
_MOMENT: Final = Struct(">IH")  # 4 ms since the first of the month, 2 counter

assert (4 + _PORT_AND_OFFSET.size) * 2 == ID_V4_CHARS
assert (16 + _PORT_AND_OFFSET.size) * 2 == ID_V6_CHARS
assert (4 + _PROCESS.size + _MOMENT.size) * 2 == ID_V4_CHARS


class OffsetMessageId(NamedTuple):
    """Where a message lies: the broker that stored it and the record's place in its log."""

    # Address of the storing broker, 4 or 16 bytes.
    address: bytes
    port: int
    physical_offset: int


def encode_offset_id(address: bytes, port: int, physical_offset: int) -> str:
    """Return the offset message id of a record.

    Args:
        address: the record's store host, 4 or 16 bytes.
        port: its port.
        physical_offset: position of the record in the log, in a ledger the entry's position + 48.
    """
    return (address + _PORT_AND_OFFSET.pack(port, physical_offset)).hex().upper()


def decode_offset_id(text: str) -> OffsetMessageId:
    """Return the parts of an offset message id.

    Raises:
        RemoteProtocolError: the text is not 32 or 56 hexadecimal digits.
    """
    if len(text) not in (ID_V4_CHARS, ID_V6_CHARS):
        raise RemoteProtocolError("message id", text, "32 or 56 hexadecimal digits")
    try:
        raw = bytes.fromhex(text)
        port, physical_offset = _PORT_AND_OFFSET.unpack(raw[-_PORT_AND_OFFSET.size :])
    except (ValueError, StructError) as error:
        raise RemoteProtocolError("message id", text, "32 or 56 hexadecimal digits") from error
    # `fromhex` leaves blanks out.
    if 2 * len(raw) != len(text):
        raise RemoteProtocolError("message id", text, "32 or 56 hexadecimal digits")
    return OffsetMessageId(raw[: -_PORT_AND_OFFSET.size], port, physical_offset)


class UniqueIds:
    """Makes unique ids as Java clients do, without a clock of its own."""

    def __init__(self, address: bytes, process_id: int, instance: int) -> None:
        """Prepare the constant part of the ids.

        Args:
            address: 4 or 16 bytes of this client's address.
            process_id: its low 16 bits are used.
            instance: any number that differs between two clients of a process; 32 bits are used.
        """
        self._prefix = address + _PROCESS.pack(process_id & 0xFFFF, instance & 0xFFFFFFFF)
        # Number of ids made; only its low 16 bits go into an id.
        self._counter = 0
        # The month that now_ms last fell in, as milliseconds since 1970, half-open.
        self._month_start_ms = 0
        self._month_end_ms = 0

    def create(self, now_ms: int) -> str:
        """Return a new id for a message made at `now_ms`, milliseconds since 1970."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_around(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        moment = _MOMENT.pack((now_ms - self._month_start_ms) & 0xFFFFFFFF, counter)
        return (self._prefix + moment).hex().upper()


def created_ms(unique_id: str, now_ms: int) -> int | None:
    """Return about when a unique id was made, or None when the text is not such an id.

    The id holds the time within a month only: the latest such moment that is not after `now_ms` is
    meant. Source: MessageClientIDSetter.getNearlyTimeFromID.
    """
    if len(unique_id) not in (ID_V4_CHARS, ID_V6_CHARS):
        return None
    try:
        within_month_ms, _ = _MOMENT.unpack(bytes.fromhex(unique_id[-2 * _MOMENT.size :]))
    except ValueError:
        return None
    start_ms, _ = month_around(now_ms)
    if start_ms + within_month_ms >= now_ms:
        start_ms, _ = month_around(start_ms - 1)
    return start_ms + int(within_month_ms)


def month_around(now_ms: int) -> tuple[int, int]:
    """Return the start of the local month that holds `now_ms` and the start of the next."""
    now = datetime.datetime.fromtimestamp(now_ms / 1000)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (start + datetime.timedelta(days=32)).replace(day=1)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)
