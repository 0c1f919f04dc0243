"""What a record costs: encode, decode, look at its head, hash its keys.

Prints one line each: microseconds for one message of 1 KiB, and the ratio to the limit measured
beside it (one copy of the same bytes plus zlib's CRC).
"""

import time
import zlib
from collections.abc import Callable

from ledgermq.protocol.java_hash import hash_unique_ids, joined_hash, unsigned_hash
from ledgermq.protocol.message_id import UniqueIds
from ledgermq.protocol.record import decode_record, decode_record_head, encode_record

_HOST = (bytes((127, 0, 0, 1)), 10911)
_BODY = bytes(range(256)) * 4
_PROPERTIES = b"UNIQ_KEY\x017F0000010001000000000000000000AB\x02WAIT\x01true\x02TAGS\x01TagA"
_BATCH = 64


def encode() -> bytes:
    """Encode one record of 1 KiB."""
    return encode_record(
        b"TopicTest",
        2,
        0,
        5,
        0,
        0,
        1700000000000,
        _HOST,
        1700000000005,
        _HOST,
        0,
        0,
        _BODY,
        _PROPERTIES,
    )


def microseconds(
    function: Callable[[], object], *, calls: int = 20_000, messages: int = 1
) -> float:
    """The best of five runs, for one message."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, time.process_time() - start)
    return best / calls / messages * 1e6


def main() -> None:
    """Measure and print."""
    data = encode()
    ids = UniqueIds(_HOST[0], 7, 9)
    keys = [ids.create(1700000000000 + i).encode() for i in range(_BATCH)]
    prefix = unsigned_hash(b"TopicTest#")
    limit = microseconds(lambda: (zlib.crc32(_BODY), bytearray(data)))
    rows = {
        "copy and crc (limit)": limit,
        "encode": microseconds(encode),
        "decode": microseconds(lambda: decode_record(data)),
        "decode head": microseconds(lambda: decode_record_head(data)),
        "hash of a unique id, alone": microseconds(lambda: joined_hash(prefix, keys[0])),
        "hash of a unique id, of 64": microseconds(
            lambda: hash_unique_ids(keys), calls=500, messages=_BATCH
        ),
    }
    for name, cost in rows.items():
        print(f"record: {name:<28} {cost:6.2f} us  {cost / limit:5.2f} of the limit")


if __name__ == "__main__":
    main()
