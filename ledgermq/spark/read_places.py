"""Which member of a broker group a range is read from, and when another one is asked instead.

    leader     the leader alone
    follower   a follower; the leader where none is there, or none has what is asked for
    any        leader and followers, about as many ranges each; then as above

Every member shows only what is committed, and a range ends at what the leader showed when it was
planned; so whoever answers, the rows are the same. A follower may not have them yet: it is asked
again for a moment, as it mostly lacks only the last commit. One that lacks more, refuses or does
not answer is left out for the rest of the range, and what is gone is believed of the leader alone.
"""

import enum
import zlib
from collections.abc import Mapping
from typing import Final

from ledgermq.protocol.route import MASTER_ID
from ledgermq.spark.partitions import QueueRange


class ReadFrom(enum.Enum):
    """The members that a read may ask; the values are those of the option."""

    LEADER = "leader"
    FOLLOWER = "follower"
    ANY = "any"


READ_FROM_ALLOWED: Final = ", ".join(place.value for place in ReadFrom)


def read_from(text: str) -> ReadFrom:
    """Reads the value of the option.

    Raises:
        ValueError: it is none of them.
    """
    return ReadFrom(text.lower())


class ReadPlaces:
    """Chooses the member for one range."""

    def __init__(self, read_from: ReadFrom, wanted: QueueRange) -> None:
        """Leaves nobody out yet.

        Args:
            read_from: who may be asked.
            wanted: the range; ranges of neighboring queues begin at different members.
        """
        self._read_from = read_from
        # As the queues of a topic begin at one offset, and the parts of a queue at others.
        self._turn = wanted.queue_id + zlib.crc32(b"%d" % wanted.start_offset)
        self._left_out: set[int] = set()

    def choose(self, members: Mapping[int, str]) -> int:
        """Returns the broker id of the member to ask; the leader's where no other one is left.

        Args:
            members: addresses by broker id, as the route has them.
        """
        if self._read_from is ReadFrom.LEADER:
            return MASTER_ID
        wants_leader = self._read_from is ReadFrom.ANY
        all_of_them = sorted(id_ for id_ in members if wants_leader or id_ != MASTER_ID)
        if not all_of_them:
            return MASTER_ID
        first = self._turn % len(all_of_them)
        in_turn = all_of_them[first:] + all_of_them[:first]
        left = [id_ for id_ in in_turn if id_ not in self._left_out]
        return left[0] if left else MASTER_ID

    def leave_out(self, broker_id: int) -> None:
        """Asks a follower no more."""
        self._left_out.add(broker_id)
