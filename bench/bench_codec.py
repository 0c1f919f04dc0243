"""What a command costs: cut the stream, read the header, read the fields, write the answer.

Prints one line each: microseconds for one send of 1 KiB, and the ratio to one copy of its frame
plus parsing its header with the standard library, measured in the same run.
"""

import json
import time
from collections.abc import Callable

from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.headers import (
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    decode_send_header,
    encode_send_response,
)

_BATCH = 64
_MSG_ID = "0A00000100002A9F0000000000000000"
_HEADER = SendMessageRequestHeaderV2(
    producer_group="producers",
    topic="TopicA",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=2,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=0,
    properties="UNIQ_KEY\x017F0000010001000000000000000000AB\x02WAIT\x01true\x02TAGS\x01TagA",
    reconsume_times=0,
    unit_mode=False,
    batch=False,
)
_PULL_HEADER = PullMessageResponseHeader(
    suggest_which_broker_id=0, next_begin_offset=32, min_offset=0, max_offset=1_000
)


def _send(serialize_type: int) -> RemotingCommand:
    command = RemotingCommand.request(310, _HEADER, bytes(range(256)) * 4)
    command.serialize_type = serialize_type
    return command


def _microseconds(work: Callable[[], object], count: int) -> float:
    """The best of five runs, for one unit of work."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            work()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def main() -> None:
    """Measures and prints."""
    frame = encode(_send(0))
    chunk = frame * _BATCH
    json_frame, binary_frame = frame[4:], encode(_send(1))[4:]
    header_bytes = json_frame[4 : len(json_frame) - 1024]
    command = decode(json_frame)
    decoder = FrameDecoder()

    def half_chunks() -> None:
        decoder.feed(chunk[: len(chunk) // 2 + 7])
        decoder.feed(chunk[len(chunk) // 2 + 7 :])

    limit = _microseconds(lambda: (bytes(bytearray(frame)), json.loads(header_bytes)), 5_000)
    works: list[tuple[str, Callable[[], object], int, int]] = [
        ("cut a frame from a chunk of 64", lambda: decoder.feed(chunk), 500, _BATCH),
        ("cut a frame, chunk split inside one", half_chunks, 500, _BATCH),
        ("decode, JSON header", lambda: decode(json_frame), 5_000, 1),
        ("decode, binary header", lambda: decode(binary_frame), 2_000, 1),
        ("read the fields of a send", lambda: decode_send_header(command), 5_000, 1),
        (
            "answer a send, JSON header",
            lambda: encode_send_response(7, 0, _MSG_ID, 2, 5, "DefaultRegion"),
            5_000,
            1,
        ),
        (
            "answer a send, binary header",
            lambda: encode_send_response(7, 1, _MSG_ID, 2, 5, "DefaultRegion"),
            5_000,
            1,
        ),
        (
            "answer a pull, without its records",
            lambda: encode_parts(command.response(0, "FOUND", _PULL_HEADER), ()),
            5_000,
            1,
        ),
        ("encode a send, JSON header", lambda: encode(command), 5_000, 1),
    ]
    print(f"limit (copy and json.loads): {limit:.2f} µs")
    for name, work, count, units in works:
        cost = _microseconds(work, count) / units
        print(f"{name}: {cost:.2f} µs, {cost / limit:.2f} of the limit")


if __name__ == "__main__":
    main()
