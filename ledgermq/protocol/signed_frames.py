"""Signatures of quick sends and pulls (`quick_frames.py`), checked over the bytes of their frames.

What is signed is what `signature.py` signs: the values of the fields by their names, and the body.
A signature holds here exactly when it holds there; a frame with fields that need thought is left to
the other road.

Part of the kernel (`ledgermq/kernel.py`): compiled with the types of `signed_frames.pxd`, or run as
it stands.
"""

import hashlib
from typing import Any, Final

from ledgermq.protocol.library_hash import LibrarySha1, find_library_sha1
from ledgermq.protocol.quick_frames import HEADER_BYTES_MAX, QuickSend

# Whether this is the compiled form: the path is that of a library.
COMPILED: Final = not __file__.endswith(".py")

# HMAC with an account's secret, begun: the inner and the outer hash, and the addresses of two
# functions of the library that take these, which are bytes then, on. Both 0: objects of hashlib.
Keyed = tuple[Any, Any, int, int]

# Access key, signature, what is signed of the fields, place of the body, which is signed behind it.
Signature = tuple[bytes, bytes, bytearray, int]

_QUOTE = 0x22
_BACKSLASH = 0x5C
_COMMA = 0x2C
_COLON = 0x3A
_ZERO = 0x30
_CLOSE = 0x7D
_SPACE = 0x20
_DELETE = 0x7F
# The separators of properties; they alone are escaped in a quick frame.
_NAME_END = 1
_VALUE_END = 2
# What the escape of a separator takes more than the separator.
_ESCAPE_EXTRA = 5
# 1 for each byte that ends a run of plain ones within a string: quote and backslash, and what
# stands in no quick frame: control characters and all but ASCII.
_STOPS = bytes(
    byte < _SPACE or byte >= _DELETE or byte in (_QUOTE, _BACKSLASH) for byte in range(256)
)
# A quote within a value is escaped: in a quick frame these bytes stand before the fields alone.
_FIELDS = b'"extFields":{'
_FIELDS_BYTES = 13
# Of one frame; the arrays below have as much room.
_MEMBERS_MAX = 32
# Of a name, for a number that tells its place in the order.
_FRONT_BYTES = 8
# A quick send has these fields: AccessKey and Signature, whose names are as long, and those of one
# letter, a to n.
_NAME_BYTES = 9
_UPPER_A = 0x41
_LETTER_A = 0x61
_SEND_MEMBERS_MAX = 15
# Where the parts of a signature stand in a frame: start and end of the access key, of the
# signature, start of the body.
_KEY = 0
_KEY_END = 1
_GIVEN = 2
_GIVEN_END = 3
_BODY = 4
# 20 bytes of SHA-1 are 27 digits of Base64 and one to fill up.
_MAC_BYTES = 20
_BLOCK_BYTES = 64
_STATE_BYTES = 128
_MAC_TEXT = 28
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FILLER = 0x3D
# Only C calls functions by their addresses.
_LIBRARY = find_library_sha1() if COMPILED else None


def begin_hmac(secret: bytes, library: LibrarySha1 | None = _LIBRARY) -> Keyed:
    """Return what checks begin with, for this form of the loops alone."""
    if len(secret) > _BLOCK_BYTES:
        secret = hashlib.sha1(secret).digest()
    secret = secret.ljust(_BLOCK_BYTES, b"\0")
    inner = bytes(byte ^ 0x36 for byte in secret)
    outer = bytes(byte ^ 0x5C for byte in secret)
    if library is None:
        return hashlib.sha1(inner), hashlib.sha1(outer), 0, 0
    return library.begin(inner), library.begin(outer), library.update, library.final


def count_signed(
    frames: list[bytes],
    sends: list[QuickSend],
    first: int,
    topics: dict[bytes, bool],
    access_key: bytes,
    keyed: Keyed,
) -> int:
    """Return how many sends, from the front, are signed by an account for topics of its own.

    Args:
        frames: those of the sends first, in their order.
        sends: as `read_quick_sends` gave them.
        first: so many from the front are known to be.
        topics: True for those that the account may send to; one that is not there ends the count.
        access_key: of the account.
        keyed: HMAC with its secret.
    """
    places, key, mac = [0] * 5, access_key, [0] * 20
    topic = None
    end, count = len(sends), first
    while count < end:
        send = sends[count]
        frame = frames[count]
        content = _read_send(frame, places)
        if content is None or places[_KEY_END] - places[_KEY] != len(access_key):
            break
        data = frame
        if not _is_text(data, places[_KEY], key, len(access_key)):
            break
        _put_mac(content, send[9], keyed, mac)
        given_size = places[_GIVEN_END] - places[_GIVEN]
        if not _spells_mac(data, places[_GIVEN], given_size, mac):
            break
        # Nearly always that of the send before.
        if send[2] != topic:
            topic = send[2]
            if not topics.get(topic, False):
                break
        count += 1
    return count


def is_signed(frame: bytes, access_key: bytes, keyed: Keyed) -> bool:
    """Tell whether a frame is signed by an account; False also where its fields need thought.

    Args:
        frame: one that is quick, without its length bytes.
        access_key, keyed: as for `count_signed`.
    """
    places, key, mac = [0] * 5, access_key, [0] * 20
    content = _read_content(frame, places)
    if content is None or places[_KEY_END] - places[_KEY] != len(access_key):
        return False
    data = frame
    if not _is_text(data, places[_KEY], key, len(access_key)):
        return False
    body = frame[places[_BODY] :] if places[_BODY] < len(frame) else b""
    _put_mac(content, body, keyed, mac)
    given_size = places[_GIVEN_END] - places[_GIVEN]
    return _spells_mac(data, places[_GIVEN], given_size, mac)


def is_signature_right(signature: bytes, content: bytearray, body: bytes, keyed: Keyed) -> bool:
    """Tell in constant time whether a signature is that of fields and body."""
    mac = [0] * 20
    _put_mac(content, body, keyed, mac)
    return _spells_mac(signature, 0, len(signature), mac)


def read_signature(frame: bytes) -> Signature | None:
    """Return what is needed to check the signature of a frame.

    None when it is not signed, or when there is more to its fields: the other road looks at it.

    Args:
        frame: one that is quick, without its length bytes.
    """
    places = [0] * 5
    content = _read_content(frame, places)
    if content is None:
        return None
    access_key = frame[places[_KEY] : places[_KEY_END]]
    return access_key, frame[places[_GIVEN] : places[_GIVEN_END]], content, places[_BODY]


def _put_mac(content: bytearray, body: bytes, keyed: Keyed, mac: list[int]) -> None:
    """Put the HMAC of fields and body down."""
    if COMPILED and keyed[2]:
        _put_library_mac(content, len(content), body, len(body), keyed, mac)
        return
    inner = keyed[0].copy()
    inner.update(content)
    if body:
        inner.update(body)
    outer = keyed[1].copy()
    outer.update(inner.digest())
    digest: bytes = outer.digest()
    for i in range(20):
        mac[i] = digest[i]


def _put_library_mac(
    content: bytearray, content_size: int, body: bytes, size: int, keyed: Keyed, mac: list[int]
) -> None:
    """Do so by functions of the library, on copies of the begun hashes; only compiled."""
    begun, update, final, state = keyed[0], keyed[2], keyed[3], [0] * 32
    assert len(begun) == _STATE_BYTES and len(keyed[1]) == _STATE_BYTES
    place = begun
    memcpy(state, place, _STATE_BYTES)  # type: ignore[name-defined]  # noqa: F821
    hash_update(update, state, content, content_size)  # type: ignore[name-defined]  # noqa: F821
    hash_update(update, state, body, size)  # type: ignore[name-defined]  # noqa: F821
    hash_final(final, mac, state)  # type: ignore[name-defined]  # noqa: F821
    begun = keyed[1]
    place = begun
    memcpy(state, place, _STATE_BYTES)  # type: ignore[name-defined]  # noqa: F821
    hash_update(update, state, mac, _MAC_BYTES)  # type: ignore[name-defined]  # noqa: F821
    hash_final(final, mac, state)  # type: ignore[name-defined]  # noqa: F821


def _spells_mac(data: bytes, at: int, size: int, mac: list[int]) -> bool:
    """Tell whether a text is the Base64 of a MAC.

    Each digit is looked at, whatever those before it were: the time says nothing about them.
    """
    if size != _MAC_TEXT:
        return False
    digits = _DIGITS
    difference = data[at + _MAC_TEXT - 1] ^ _FILLER
    held = waiting = 0
    for i in range(20):
        # What is older than 14 bits was looked at.
        held = (held << 8 | mac[i]) & 0x3FFF
        waiting += 8
        while waiting >= 6:
            waiting -= 6
            difference |= data[at] ^ digits[held >> waiting & 63]
            at += 1
    # Four bits are left.
    difference |= data[at] ^ digits[held << 2 & 63]
    return difference == 0


def _read_content(frame: bytes, places: list[int]) -> bytearray | None:
    """Return what is signed of the fields, and put down where the parts of the signature stand.

    None as in `read_signature`.
    """
    data = frame
    fronts, names, starts, ends, sizes, order = (
        [0] * 32, [0] * 32, [0] * 32, [0] * 32, [0] * 32, [0] * 32
    )  # fmt: skip
    at = _fields_at(data, len(frame), places)
    if at < 0:
        return None
    end = places[_BODY]
    count = _read_members(data, at, end, fronts, names, starts, ends, sizes, order, places)
    if count < 0 or places[_KEY] < 0 or places[_GIVEN] < 0:
        return None
    total = 0
    for place in range(count):
        total += sizes[place]
    room = bytearray(total)
    out = room
    length = 0
    for place in range(count):
        member = order[place]
        _put_plain(data, starts[member], ends[member], out, length, sizes[member])
        length += sizes[member]
    return room


def _read_send(frame: bytes, places: list[int]) -> bytearray | None:
    """Do what `_read_content` does for a quick send, in a third of the time.

    Of such a frame it is known that its fields are those of one letter, whose order by name is that
    of the alphabet, and the two of the signature, that each is there once, and that every value is
    plain but for escapes.
    """
    data = frame
    starts, ends, sizes = [0] * 15, [0] * 15, [0] * 15
    at = _fields_at(data, len(frame), places)
    if at < 0:
        return None
    end = places[_BODY]
    total = 0
    # The shortest member: a name of one letter, a colon, an empty value, and what stands behind.
    while at + 6 < end and data[at] == _QUOTE:
        is_letter = data[at + 2] == _QUOTE
        # Upper case stands before lower case: the access key is the first of all.
        member = data[at + 1] - _LETTER_A + 1 if is_letter else 0
        start = at + 5 if is_letter else at + _NAME_BYTES + 4
        if not 0 <= member < _SEND_MEMBERS_MAX:
            return None
        value_end, escapes = start, 0
        while value_end < end and data[value_end] != _QUOTE:
            if data[value_end] == _BACKSLASH:
                if not _is_separator(data, value_end, end):
                    return None
                escapes += 1
                value_end += _ESCAPE_EXTRA
            value_end += 1
        if value_end + 1 >= end:
            return None
        if not is_letter and data[at + 1] != _UPPER_A:
            places[_GIVEN], places[_GIVEN_END] = start, value_end
        else:
            starts[member], ends[member] = start, value_end
            sizes[member] = value_end - start - escapes * _ESCAPE_EXTRA
            total += sizes[member]
            if member == 0:
                places[_KEY], places[_KEY_END] = start, value_end
        at = value_end + 2
        if data[value_end + 1] == _CLOSE:
            break
    if places[_KEY] < 0 or places[_GIVEN] < 0:
        return None
    room = bytearray(total)
    out = room
    length = 0
    for member in range(15):
        if sizes[member]:
            _put_plain(data, starts[member], ends[member], out, length, sizes[member])
            length += sizes[member]
    return room


def _fields_at(data: bytes, size: int, places: list[int]) -> int:
    """Return the place of the first field of a frame, -1 when it needs thought.

    Where its body begins is put down, and that no part of the signature is found yet.
    """
    if size < 6:
        return -1
    end = 4 + (data[1] << 16 | data[2] << 8 | data[3])
    if end > size or end > HEADER_BYTES_MAX:
        return -1
    places[_KEY] = places[_GIVEN] = -1
    places[_BODY] = end
    at = 4
    while at + _FIELDS_BYTES < end:
        # Most bytes are none of a quote and an e.
        if data[at] == _QUOTE and _is_text(data, at, _FIELDS, _FIELDS_BYTES):
            return at + _FIELDS_BYTES
        at += 1
    return -1


def _read_members(
    data: bytes, at: int, end: int, fronts: list[int], names: list[int], starts: list[int],
    ends: list[int], sizes: list[int], order: list[int], places: list[int],
) -> int:  # fmt: skip
    """Find names and values of the fields, and their order by name; return how many there are.

    -1 when one stands there twice, there are too many, or one needs thought. `sizes` are those of
    the signed bytes: 0 where a value is not signed.
    """
    count = 0
    while True:
        name_end = _name_end(data, at, end)
        # The shortest member goes on with a colon and two quotes, and something stands behind it.
        if name_end < 0 or name_end + 4 >= end or data[name_end + 1] != _COLON:
            return -1
        start, size = name_end + 3, name_end - at - 1
        if data[name_end + 2] != _QUOTE or count == _MEMBERS_MAX:
            return -1
        value_end = _value_end(data, start, end)
        plain = value_end - start
        if value_end < -1:
            value_end = -value_end
            plain = -1
        if value_end < 0 or value_end + 1 >= end:
            return -1
        names[count], starts[count], ends[count] = at + 1, start, value_end
        if not _sort_in(data, count, _front(data, at + 1, size), fronts, names, starts, order):
            return -1
        sizes[count] = _signed_size(data, at + 1, size, start, value_end, plain, places)
        if sizes[count] < 0:
            return -1
        count += 1
        at = value_end + 2
        if data[value_end + 1] == _CLOSE:
            return count
        if data[value_end + 1] != _COMMA:
            return -1


def _sort_in(
    data: bytes, count: int, front: int, fronts: list[int], names: list[int], starts: list[int],
    order: list[int],
) -> bool:  # fmt: skip
    """Put the last member into the order of names; tell whether its name is new."""
    fronts[count] = front
    place = count
    while place > 0:
        other = order[place - 1]
        if fronts[other] < front:
            break
        if fronts[other] == front:
            way = _compare(data, names[count], starts[count], names[other], starts[other])
            if way == 0:
                return False
            if way > 0:
                break
        order[place] = other
        place -= 1
    order[place] = count
    return True


def _front(data: bytes, at: int, size: int) -> int:
    """Return a number that is the lower one for the lower of two names, equal if both begin so."""
    used = min(size, _FRONT_BYTES)
    front = 0
    for i in range(used):
        front = front << 8 | data[at + i]
    return front << 8 * (_FRONT_BYTES - used)


def _compare(data: bytes, at: int, start: int, other: int, other_start: int) -> int:
    """Return below, equal to or above 0 as a name stands before, is, or stands behind another.

    Args:
        at, other: where the names begin.
        start, other_start: where their values begin, three bytes behind them.
    """
    length, other_length = start - at, other_start - other
    i = 3
    while i < length and i < other_length:
        if data[at + i - 3] != data[other + i - 3]:
            return -1 if data[at + i - 3] < data[other + i - 3] else 1
        i += 1
    return length - other_length


def _signed_size(
    data: bytes, name: int, size: int, start: int, end: int, plain: int, places: list[int]
) -> int:
    """Return how many bytes of a value are signed, -1 when it needs thought.

    Of what belongs to the signature the place is put down.

    Args:
        name, size: the name's place and length.
        start, end: of the value.
        plain: its length, -1 when it has escapes.
    """
    if size == 9 and _is_text(data, name, b"AccessKey", 9):
        places[_KEY], places[_KEY_END] = start, end
        return plain
    if size == 9 and _is_text(data, name, b"Signature", 9):
        places[_GIVEN], places[_GIVEN_END] = start, end
        return 0
    if size == 17 and _is_text(data, name, b"_UNIQUE_KEY_QUERY", 17):
        return 0
    # It says of which form the signature is.
    if size == 8 and _is_text(data, name, b"SignForm", 8):
        return -1
    return plain if plain >= 0 else _plain_length(data, start, end)


def _plain_length(data: bytes, at: int, end: int) -> int:
    """Return the bytes of a value without its escapes, -1 when one is not of a separator."""
    length = end - at
    while at < end:
        if data[at] == _BACKSLASH:
            if not _is_separator(data, at, end):
                return -1
            length -= _ESCAPE_EXTRA
            at += _ESCAPE_EXTRA
        at += 1
    return length


def _is_separator(data: bytes, at: int, end: int) -> bool:
    """Tell whether the escape that begins at `at` is one of a separator."""
    if at + 6 > end or not _is_text(data, at + 1, b"u000", 4):
        return False
    return _ZERO + _NAME_END <= data[at + 5] <= _ZERO + _VALUE_END


def _put_plain(data: bytes, at: int, end: int, out: bytearray, length: int, size: int) -> None:
    """Put a value of so many bytes down behind what is there, without its escapes."""
    if size == end - at:
        for i in range(size):
            out[length + i] = data[at + i]
        return
    for i in range(size):
        if data[at] == _BACKSLASH:
            at += _ESCAPE_EXTRA
            out[length + i] = data[at] - _ZERO
        else:
            out[length + i] = data[at]
        at += 1


def _name_end(data: bytes, at: int, end: int) -> int:
    """Return where the quote stands that closes the name at `at`, -1 when it needs thought."""
    if at >= end or data[at] != _QUOTE:
        return -1
    stops = _STOPS
    at += 1
    while at < end and not stops[data[at]]:
        at += 1
    return at if at < end and data[at] == _QUOTE else -1


def _value_end(data: bytes, at: int, end: int) -> int:
    """Return where the quote stands that closes the value whose first byte is at `at`.

    The place is negative when there is a backslash before it. -1 when there is none, or a control
    character or anything but ASCII before it.
    """
    stops = _STOPS
    way = 1
    while at < end:
        if not stops[data[at]]:
            at += 1
        elif data[at] == _QUOTE:
            return way * at
        elif data[at] == _BACKSLASH:
            # The character behind it may be a quote.
            at += 2
            way = -1
        else:
            return -1
    return -1


def _is_text(data: bytes, at: int, text: bytes, text_bytes: int) -> bool:
    """Tell whether a text stands at a place; the caller knows that there is room for it."""
    for i in range(text_bytes):
        if data[at + i] != text[i]:
            return False
    return True
