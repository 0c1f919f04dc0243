"""Quick sends and pulls read in one pass: most frames that a busy broker gets.

A frame is quick when nothing about it needs thought: it has a JSON header in ASCII without blanks.
A quick send is SEND_MESSAGE_V2 with one message and no property that means something to a broker
but `WAIT=true`, which is left out. A quick pull wants an answer, and its fields have no escapes.
Who signed a frame means nothing here (`signed_frames.py` looks at that).
Everything else, and everything that is wrong, is left to `command.py` and the headers, which decide
what a frame means: a quick one is read here as it would be there.

Part of the kernel (`ledgermq/kernel.py`): compiled with the types of `quick_frames.pxd`. Uncompiled
it gives the same, but walks byte by byte in Python; then the other road is the quicker one.
"""

from typing import Any, Final

from ledgermq.protocol.properties import KEYS_COUNT_MAX

# Whether this is the compiled form: the path is that of a library.
COMPILED: Final = not __file__.endswith(".py")

# opaque, flag of the command, topic, queue id, flag of the client's application, sysFlag, born
# timestamp, reconsume times, properties without WAIT, each with its separator behind it, body.
QuickSend = tuple[int, int, bytes, int, int, int, int, int, bytes, bytes]

# opaque, queue offset, number of messages, offset to commit, and all else that the request says:
# two pulls with the same such text differ in those numbers alone.
QuickPull = tuple[int, int, int, int, bytes]

# Longer headers are left to the other road, as are numbers with more digits.
HEADER_BYTES_MAX: Final = 65_536
PULL_BYTES_MAX: Final = 1024
_QUOTE = 0x22
_BACKSLASH = 0x5C
_COMMA = 0x2C
_COLON = 0x3A
_MINUS = 0x2D
_ZERO = 0x30
_NINE = 0x39
_OPEN = 0x7B
_CLOSE = 0x7D
_SPACE = 0x20
_DELETE = 0x7F
_KEYS_MAX = KEYS_COUNT_MAX
_NAME_END = 1
_VALUE_END = 2
_DIGITS_MAX = 18
_INT32_MAX = 0x7FFFFFFF
_SEND_MESSAGE_V2 = 310
_PULL_MESSAGE = 11
_LITE_PULL_MESSAGE = 361
_RESPONSE_BIT = 1
_ONE_WAY_BIT = 2
# Fields a to n of the header, as bits; all of a to h must be there.
_REQUIRED = 0xFF
_A = 0x61
_FIELDS = 14
# Of the fields of a signature, behind those.
_UPPER_A = 0x41
_ACCESS_KEY_BIT = 1 << 14
_SIGNATURE_BIT = 1 << 15
# Fields of a pull by their numbers (`_pull_field`): texts come first, then numbers of 64 bits, from
# 8 on of 32. Not needed are subscription (2), expressionType (3) and those from 11 on.
_PULL_TEXTS = 4
_PULL_INT32 = 8
_PULL_REQUIRED = 0x7F3


def read_quick_sends(frames: list[bytes]) -> list[QuickSend]:
    """Return the quick sends at the front of `frames`, up to a frame that is none.

    Args:
        frames: without their length bytes, as FrameDecoder gives them.
    """
    sends = []
    for frame in frames:
        send = _read_frame(frame, False)
        if send is None:
            break
        sends.append(send)
    return sends


def read_quick_pull(frame: bytes) -> QuickPull | None:
    """Return what a frame says when it is a quick pull, else None.

    Args:
        frame: without its length bytes.
    """
    pull: QuickPull | None = _read_frame(frame, True)
    return pull


def _read_frame(frame: bytes, is_pull: bool) -> Any:
    """Return a quick pull or a quick send, whichever is wanted; None when it is none."""
    data = frame
    size = len(frame)
    if size < 6 or data[0] != 0:
        return None
    end = 4 + (data[1] << 16 | data[2] << 8 | data[3])
    if end > size or end > HEADER_BYTES_MAX or data[4] != _OPEN or data[end - 1] != _CLOSE:
        return None
    code = opaque = flag = -1
    fields_at = fields_end = 0
    at = 5
    while at < end:
        # A member's name, its colon, its value, and what stands behind it.
        stop = _string_end(data, at, end)
        if stop < 0 or stop + 2 >= end or data[stop + 1] != _COLON:
            return None
        name_at, value_at, length = at + 1, stop + 2, stop - at - 1
        if data[value_at] == _OPEN:
            if fields_end or not _is_text(data, name_at, length, b"extFields", 9):
                return None
            fields_at = value_at
            value_end = fields_end = _object_end(data, value_at, end)
        elif data[value_at] == _QUOTE:
            value_end = _string_end(data, value_at, end) + 1
            if not _is_text(data, name_at, length, b"language", 8) and not _is_text(
                data, name_at, length, b"serializeTypeCurrentRPC", 23
            ):
                # An empty remark says nothing; Go clients send one.
                is_remark = _is_text(data, name_at, length, b"remark", 6)
                if not is_remark or value_end != value_at + 2:
                    return None
        else:
            value_end = _number_end(data, value_at, end)
            if value_end > 0:
                number = _number(data, value_at, value_end)
                if not -_INT32_MAX <= number <= _INT32_MAX:
                    return None
                if _is_text(data, name_at, length, b"code", 4):
                    code = number
                    if is_pull != (code == _PULL_MESSAGE or code == _LITE_PULL_MESSAGE):
                        return None
                elif _is_text(data, name_at, length, b"opaque", 6):
                    opaque = number
                elif _is_text(data, name_at, length, b"flag", 4):
                    flag = number
                elif not _is_text(data, name_at, length, b"version", 7):
                    return None
        if value_end <= 0 or value_end >= end:
            return None
        at = value_end + 1
        if data[value_end] == _CLOSE:
            break
        if data[value_end] != _COMMA:
            return None
    if at != end or not fields_end or opaque < 0 or flag < 0 or flag & _RESPONSE_BIT:
        return None
    if is_pull:
        if code < 0 or flag & _ONE_WAY_BIT or size > PULL_BYTES_MAX:
            return None
        return _read_pull(frame, fields_at + 1, fields_end, opaque)
    if code != _SEND_MESSAGE_V2:
        return None
    return _read_fields(frame, fields_at + 1, fields_end, end, opaque, flag)


def _read_fields(
    frame: bytes, start: int, stop: int, body_at: int, opaque: int, flag: int
) -> QuickSend | None:
    """Read the members of extFields, the last of which ends before the brace at `stop` - 1."""
    data = frame
    seen = 0
    topic_at = topic_end = properties_at = properties_end = 0
    queue_id = sys_flag = born = own_flag = times = number = 0
    at = start
    while at < stop:
        # "x":"value" and a comma, or the closing brace.
        if at + 6 > stop or data[at] != _QUOTE:
            return None
        if data[at + 2] != _QUOTE:
            bit = _ACCESS_KEY_BIT if data[at + 1] == _UPPER_A else _SIGNATURE_BIT
            at = -1 if seen & bit else _signature_end(data, at, stop)
            if at < 0:
                return None
            seen |= bit
            continue
        if data[at + 3] != _COLON:
            return None
        key = data[at + 1] - _A
        value_end = _string_end(data, at + 4, stop)
        if not 0 <= key < _FIELDS or seen >> key & 1 or value_end < 0:
            return None
        seen |= 1 << key
        value_at = at + 5
        if 3 <= key <= 7 or key == 9 or key == 11:
            # d, e, f, g, h, j, l: numbers.
            if _number_end(data, value_at, value_end + 1) != value_end:
                return None
            number = _number(data, value_at, value_end)
            if key != 6 and not -_INT32_MAX <= number <= _INT32_MAX:
                return None
        elif key == 10 or key == 12:
            # k, m: "unit mode" may be either, "batch" must not be true.
            is_false = _is_text(data, value_at, value_end - value_at, b"false", 5)
            if not is_false and (
                key == 12 or not _is_text(data, value_at, value_end - value_at, b"true", 4)
            ):
                return None
        if key == 1:
            topic_at, topic_end = value_at, value_end
        elif key == 4:
            queue_id = number
        elif key == 5:
            sys_flag = number
        elif key == 6:
            born = number
        elif key == 7:
            own_flag = number
        elif key == 8:
            properties_at, properties_end = value_at, value_end
        elif key == 9:
            times = number
        at = value_end + 2
        if data[value_end + 1] != (_COMMA if at < stop else _CLOSE):
            return None
    if seen & _REQUIRED != _REQUIRED or at != stop:
        return None
    if _has_escape(data, topic_at, topic_end):
        return None
    properties = _read_properties(frame, properties_at, properties_end)
    if properties is None:
        return None
    topic, body = frame[topic_at:topic_end], frame[body_at:]
    return (
        opaque, flag, topic, queue_id, own_flag, sys_flag, born, times, properties, body
    )  # fmt: skip


def _signature_end(data: bytes, at: int, stop: int) -> int:
    """Return the place behind an account or a signature among the fields, -1 for another field."""
    if at + 14 > stop or data[at + 10] != _QUOTE or data[at + 11] != _COLON:
        return -1
    if not _is_text(data, at + 1, 9, b"AccessKey", 9) and not _is_text(
        data, at + 1, 9, b"Signature", 9
    ):
        return -1
    if data[at + 12] != _QUOTE:
        return -1
    at += 13
    while data[at] != _QUOTE:
        if data[at] < _SPACE or data[at] >= _DELETE or data[at] == _BACKSLASH:
            return -1
        at += 1
        if at >= stop:
            return -1
    at += 2
    return at if data[at - 1] == (_COMMA if at < stop else _CLOSE) else -1


def _read_pull(frame: bytes, start: int, stop: int, opaque: int) -> QuickPull | None:
    """Read the members of a pull's extFields, as _read_fields does those of a send.

    Members of other names say nothing.
    """
    data = frame
    starts, ends, numbers = [0] * 13, [0] * 13, [0] * 13
    seen = 0
    at = start
    while at < stop:
        name_end = _string_end(data, at, stop)
        if name_end < 0 or name_end + 2 >= stop or data[name_end + 1] != _COLON:
            return None
        value_at = name_end + 3
        value_end = _string_end(data, name_end + 2, stop)
        if value_end < 0 or _has_escape(data, at, value_end):
            return None
        key = _pull_field(data, at + 1, name_end - at - 1)
        if key >= 0:
            if seen >> key & 1:
                return None
            seen |= 1 << key
            starts[key], ends[key] = value_at, value_end
            if key >= _PULL_TEXTS:
                if _number_end(data, value_at, value_end + 1) != value_end:
                    return None
                numbers[key] = _number(data, value_at, value_end)
                if key >= _PULL_INT32 and not -_INT32_MAX <= numbers[key] <= _INT32_MAX:
                    return None
        at = value_end + 2
        if data[value_end + 1] != (_COMMA if at < stop else _CLOSE):
            return None
    if seen & _PULL_REQUIRED != _PULL_REQUIRED or at != stop:
        return None
    # In a field there is no byte below a blank.
    text = b"\0".join(
        (
            frame[starts[0] : ends[0]],
            frame[starts[1] : ends[1]],
            frame[starts[2] : ends[2]],
            frame[starts[3] : ends[3]],
            frame[starts[6] : ends[6]],
            frame[starts[8] : ends[8]],
            frame[starts[9] : ends[9]],
        )
    )
    return opaque, numbers[4], numbers[10], numbers[5], text


def _pull_field(data: bytes, at: int, length: int) -> int:
    """Return the number of a pull's field, -1 for a name that is none.

    Numbers: 0 to 3 texts, 4 to 7 of 64 bits, the others of 32.
    """
    if length == 5:
        return 1 if _is_text(data, at, 5, b"topic", 5) else -1
    if length == 7:
        if _is_text(data, at, 7, b"queueId", 7):
            return 8
        return 9 if _is_text(data, at, 7, b"sysFlag", 7) else -1
    if length == 10:
        if _is_text(data, at, 10, b"maxMsgNums", 10):
            return 10
        return 6 if _is_text(data, at, 10, b"subVersion", 10) else -1
    if length == 11:
        if _is_text(data, at, 11, b"queueOffset", 11):
            return 4
        return 11 if _is_text(data, at, 11, b"maxMsgBytes", 11) else -1
    if length == 12:
        if _is_text(data, at, 12, b"commitOffset", 12):
            return 5
        return 2 if _is_text(data, at, 12, b"subscription", 12) else -1
    if length == 13:
        if _is_text(data, at, 13, b"consumerGroup", 13):
            return 0
        return 12 if _is_text(data, at, 13, b"requestSource", 13) else -1
    if length == 14:
        return 3 if _is_text(data, at, 14, b"expressionType", 14) else -1
    return 7 if _is_text(data, at, length, b"suspendTimeoutMillis", 20) else -1


def _read_properties(frame: bytes, start: int, end: int) -> bytes | None:
    """Return properties unescaped, without WAIT, a separator behind each; None if not quick."""
    if start == end:
        return b""
    data = frame
    room = bytearray(end - start + 1)
    out = room
    at, length = start, 0
    while at < end:
        char = data[at]
        if char == _BACKSLASH:
            # Escapes of six bytes for the two separators; all others are left to the other road.
            if at + 6 > end or not _is_text(data, at + 1, 4, b"u000", 4):
                return None
            char = data[at + 5] - _ZERO
            if not _NAME_END <= char <= _VALUE_END:
                return None
            at += 5
        out[length] = char
        length += 1
        at += 1
    if out[length - 1] != _VALUE_END:
        out[length] = _VALUE_END
        length += 1
    length = _without_wait(out, length)
    return None if length < 0 else bytes(room[:length])


def _without_wait(out: bytearray, length: int) -> int:
    """Close the gap that WAIT=true leaves; return the new length, -1 when there is more to it.

    Names that a broker acts on, WAIT with another value, as many keys as may be too many, and
    elements that are not a name and a value are such more.
    """
    start = kept = 0
    while start < length:
        name_end = start
        while out[name_end] > _VALUE_END:
            name_end += 1
        if out[name_end] != _NAME_END or name_end == start:
            return -1
        stop = name_end + 1
        while out[stop] > _VALUE_END:
            stop += 1
        if out[stop] != _VALUE_END or _means_something(out, start, name_end - start):
            return -1
        stop += 1
        if _is_text(out, start, name_end - start, b"KEYS", 4) and _has_many_keys(
            out, name_end + 1, stop - 1
        ):
            return -1
        if _is_text(out, start, name_end - start, b"WAIT", 4):
            if not _is_text(out, name_end + 1, stop - name_end - 2, b"true", 4):
                return -1
        else:
            while start < stop:
                out[kept] = out[start]
                kept += 1
                start += 1
        start = stop
    return kept


def _means_something(data: bytes | bytearray, at: int, length: int) -> bool:
    """Tell whether a property of this name is one that sends are looked through for."""
    if length == 5:
        return _is_text(data, at, 5, b"DELAY", 5)
    if length == 7:
        return _is_text(data, at, 7, b"CLUSTER", 7)
    if length == 8:
        return _is_text(data, at, 8, b"TRAN_MSG", 8)
    if 14 <= length <= 16 and _is_text(data, at, 9, b"TIMER_DEL", 9):
        return True
    return length >= 12 and _is_text(data, at, 12, b"INNER_MULTI_", 12)


def _has_many_keys(data: bytes | bytearray, at: int, end: int) -> bool:
    """Tell whether there may be more keys than a message may have: the long road counts them."""
    count = 1
    while at < end:
        if data[at] == _SPACE:
            count += 1
        at += 1
    return count > _KEYS_MAX


def _string_end(data: bytes, at: int, end: int) -> int:
    """Return where the quote stands that closes the string at `at`, -1 when none does or it holds
    a control character or anything but ASCII.
    """
    if at >= end or data[at] != _QUOTE:
        return -1
    at += 1
    while at < end:
        char = data[at]
        if char == _QUOTE:
            return at
        if char < _SPACE or char >= _DELETE:
            return -1
        # The character behind a backslash may be a quote.
        at += 2 if char == _BACKSLASH else 1
    return -1


def _object_end(data: bytes, at: int, end: int) -> int:
    """Return the place behind an object of strings, -1 when there is none."""
    at += 1
    while at < end:
        char = data[at]
        if char == _CLOSE:
            return at + 1
        if char == _QUOTE:
            at = _string_end(data, at, end)
            if at < 0:
                return -1
        elif char != _COMMA and char != _COLON:
            return -1
        at += 1
    return -1


def _number_end(data: bytes, at: int, end: int) -> int:
    """Return the place behind a whole number as Java writes it, -1 when there is none."""
    start = at
    if at < end and data[at] == _MINUS:
        at += 1
        start = at
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    if at == start or at - start > _DIGITS_MAX or at >= end:
        return -1
    is_padded = data[start] == _ZERO and (at - start > 1 or data[start - 1] == _MINUS)
    return -1 if is_padded else at


def _number(data: bytes, at: int, end: int) -> int:
    """Return the number between two places, which `_number_end` has found."""
    is_negative = data[at] == _MINUS
    if is_negative:
        at += 1
    value = 0
    while at < end:
        value = value * 10 + (data[at] - _ZERO)
        at += 1
    return -value if is_negative else value


def _has_escape(data: bytes, at: int, end: int) -> bool:
    while at < end:
        if data[at] == _BACKSLASH:
            return True
        at += 1
    return False


def _is_text(data: bytes | bytearray, at: int, length: int, text: bytes, text_bytes: int) -> bool:
    """Tell whether `length` bytes from `at` on are `text`; the caller knows that they are there."""
    if length != text_bytes:
        return False
    for i in range(text_bytes):
        if data[at + i] != text[i]:
            return False
    return True
