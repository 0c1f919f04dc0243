"""Bodies that say where groups stand, written in pieces: what the whole body is, it is in bytes.

The shapes are `ConsumeStats`, `ConsumeStatsList` and the time spans of 303: tens of thousands of
queues, which nobody can write between two looks at the sockets.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import ConsumeOffsets, MessageQueue, TopicOffset

# Some 15 microseconds each, to look up and to write.
QUEUES_A_PIECE: Final = 16


def batched(numbers: range, size: int) -> Iterator[range]:
    """Yields a range in pieces of so many numbers, the last one as it comes."""
    for first in range(0, len(numbers), size):
        yield numbers[first : first + size]


def encode_members(table: Mapping[MessageQueue, ConsumeOffsets | TopicOffset]) -> bytes:
    """Returns the members of a table, without its braces; the table has one at least."""
    return lenient_json.write(dict(table))[1:-1]


def encode_stats(rows: Sequence[bytes], rate: float) -> bytes:
    """Returns a ConsumeStats.

    Args:
        rows: members of its table, as `encode_members` gives them.
        rate: messages a second.
    """
    table = b",".join(rows)
    return b'{"consumeTps":%b,"offsetTable":{%b}}' % (lenient_json.write(rate), table)


def encode_stats_list(groups: Sequence[bytes], address: str, behind: int) -> bytes:
    """Returns a ConsumeStatsList.

    Args:
        groups: as `encode_group` gives them.
        address: of the broker.
        behind: messages that the groups have not consumed.
    """
    return b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d}' % (
        lenient_json.write(address),
        b",".join(groups),
        behind,
    )


def encode_group(group: str, stats: Sequence[bytes]) -> bytes:
    """Returns what a ConsumeStatsList says of one group, whose ConsumeStats are given."""
    return b"{%b:[%b]}" % (lenient_json.write(group), b",".join(stats))
