"""Those who wait for a commit: into the queue in one pass, and out of it with their answers.

Part of the kernel (`ledgermq/kernel.py`): compiled with the types of `answering.pxd`, or run as it
stands. `COMPILED` picks how the digits of an answer are put down.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ledgermq.broker.sends.waiting import Done, Request, WaitingTuple
from ledgermq.commitlog import AppendResult

# Whether this is the compiled form: the path is that of a library.
COMPILED: Final = not __file__.endswith(".py")

# Writes the answer to a send: opaque, serialize type, message id, queue id, queue offset, region.
Encode = Callable[[int, int, str, int, int, str], bytes]
# Frames of each connection, what is to be called with what, messages, and their bytes.
Answers = tuple[dict[Any, list[bytes]], list[tuple[Done, Sequence[AppendResult] | None]], int, int]

# Upper ends of the sizes that messages are counted by, in bytes, as RocketMQ 5 has them.
SIZES: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
_TINY, _SMALL, _MEDIUM, _LARGE, _HUGE, _MOST = SIZES
_ZERO = 0x30
_DIGITS_MAX = 20


def wait_for(
    requests: Sequence[Request],
    results: Sequence[AppendResult],
    id_prefix: str,
    deadline_ms: float,
    without_slaves: Done,
    sizes: list[int],
) -> tuple[list[WaitingTuple], list[WaitingTuple]]:
    """Return who waits for all that a commit needs, and who does not wait for slaves.

    Args:
        requests: in the order of their messages.
        results: of the messages.
        id_prefix: of an offset message id: address and port of this broker.
        deadline_ms: of all.
        without_slaves: marks those who do not wait for slaves.
        sizes: gets the bytes of all that clients sent, and then how many messages were as large
            as each of `SIZES` allows, each below the next, and larger than all; those of a batch
            count as the average of it.
    """
    for_all: list[WaitingTuple] = []
    not_for_slaves: list[WaitingTuple] = []
    cursor = 0
    total = tiny = small = medium = 0
    for connection, opaque, serialize_type, queue_id, count, size, done in requests:
        index, physical_offset, _, queue_offset, _ = results[cursor]
        own = None
        waiting = for_all
        if count == 1:
            message_id = f"{id_prefix}{physical_offset:016X}"
        else:
            part = results[cursor : cursor + count]
            message_id = ",".join([f"{id_prefix}{result[1]:016X}" for result in part])
            index = part[-1][0]
        if done is not None and done is not without_slaves:
            own = results[cursor : cursor + count]
        else:
            if done is not None:
                done = None
                waiting = not_for_slaves
            total += size
            each = size if count == 1 else size // count
            if each <= _TINY:
                tiny += count
            elif each <= _SMALL:
                small += count
            elif each <= _MEDIUM:
                medium += count
            else:
                place = 4 if each <= _LARGE else 5 if each <= _HUGE else 6 if each <= _MOST else 7
                sizes[place] += count
        cursor += count
        waiting.append(
            (
                index, connection, opaque, serialize_type, message_id, queue_id, queue_offset,
                count, size, deadline_ms, done, own,
            )
        )  # fmt: skip
    sizes[0] += total
    sizes[1] += tiny
    sizes[2] += small
    sizes[3] += medium
    return for_all, not_for_slaves


def take_answers(
    waiting: deque[WaitingTuple],
    end_index: int,
    pieces: Sequence[bytes] | None,
    encode: Encode,
    region_id: str,
) -> Answers:
    """Take those out of the queue whose last message stands below an index; return their answers.

    Args:
        pieces: of a JSON header, between queue id, message id, queue offset and opaque; None when
            all answers are left to `encode`.
        encode: writes all other answers.
        region_id: told in them.
    """
    frames_of: dict[Any, list[bytes]] = {}
    dones: list[tuple[Done, Sequence[AppendResult] | None]] = []
    count = size = 0
    while waiting:
        (
            index, connection, opaque, serialize_type, message_id, queue_id, queue_offset,
            message_count, size_bytes, _, done, results,
        ) = waiting[0]  # fmt: skip
        if index >= end_index:
            break
        waiting.popleft()
        count += message_count
        size += size_bytes
        if connection is not None:
            if COMPILED and serialize_type == 0 and pieces is not None and opaque >= 0:
                frame = _json_answer(pieces, queue_id, message_id.encode(), queue_offset, opaque)
            else:
                frame = encode(
                    opaque, serialize_type, message_id, queue_id, queue_offset, region_id
                )
            frames = frames_of.get(connection)
            if frames is None:
                frames_of[connection] = [frame]
            else:
                frames.append(frame)
        elif done is not None:
            dones.append((done, results))
    return frames_of, dones, count, size


def _json_answer(
    pieces: Sequence[bytes], queue_id: int, message_id: bytes, queue_offset: int, opaque: int
) -> bytes:
    """Return a frame: lengths, and the pieces with the values between them."""
    room = bytearray(
        8
        + len(pieces[0]) + len(pieces[1]) + len(pieces[2]) + len(pieces[3]) + len(pieces[4])
        + len(message_id) + 3 * _DIGITS_MAX
    )  # fmt: skip
    out = room
    at = _put_bytes(out, 8, pieces[0], len(pieces[0]))
    at = _put_number(out, at, queue_id)
    at = _put_bytes(out, at, pieces[1], len(pieces[1]))
    at = _put_bytes(out, at, message_id, len(message_id))
    at = _put_bytes(out, at, pieces[2], len(pieces[2]))
    at = _put_number(out, at, queue_offset)
    at = _put_bytes(out, at, pieces[3], len(pieces[3]))
    at = _put_number(out, at, opaque)
    at = _put_bytes(out, at, pieces[4], len(pieces[4]))
    _put_length(out, 0, at - 4)
    _put_length(out, 4, at - 8)
    return bytes(room[:at])


def _put_length(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


def _put_bytes(out: bytearray, at: int, data: bytes, size: int) -> int:
    """Put bytes down and return the place behind them."""
    for i in range(size):
        out[at + i] = data[i]
    return at + size


def _put_number(out: bytearray, at: int, value: int) -> int:
    """Put the digits of a number of 0 or more down and return the place behind them."""
    digits, rest = 1, value
    while rest > 9:
        rest = rest // 10
        digits += 1
    end = at + digits
    for place in range(digits):
        out[end - 1 - place] = _ZERO + value % 10
        value = value // 10
    return end
