"""StoredRows: the ids of the rows that are in some topics since a write began.

Only committed messages are read, and all of them up to the moment of the call, or an error says why
not. Each look reads what came since the one before it.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from ledgermq.client import MessageQueue
from ledgermq.spark.batches import DEFAULT_GROUP, records_of
from ledgermq.spark.cluster import Cluster, PassingError, Patience
from ledgermq.spark.errors import UnknownTopicError
from ledgermq.spark.offsets import Offsets
from ledgermq.spark.partitions import QueueRange, queue_name
from ledgermq.spark.pulling import RangePull

_FETCH_BYTES: Final = 4 * 1024 * 1024
_DIGEST_BYTES: Final = 16


class StoredRows:
    """Ids by a digest of 16 bytes; about 100 bytes of memory each."""

    def __init__(
        self, cluster: Cluster, topics: Iterable[str], since: Offsets, row_id_property: str
    ) -> None:
        """Reads nothing yet.

        Args:
            cluster: stays the caller's.
            topics: those that are looked at.
            since: where their queues ended before the first row was sent; those that are not named
                are read from their beginning.
            row_id_property: the property that holds a row's id.
        """
        self._cluster = cluster
        self._topics = sorted(topics)
        self._row_id_property = row_id_property
        # What is before is known.
        self._next = dict(since)
        self._digests: set[bytes] = set()

    def __contains__(self, row_id: str) -> bool:
        return _digest(row_id) in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def look(self) -> None:
        """Reads what has come up to now.

        Raises:
            ClusterError: a queue that was there is not served.
            OffsetsRemovedError: retention removed rows that were not read yet.
        """
        for topic in self._topics:
            for queue in self._queues(topic):
                end = self._cluster.max_offset(queue)
                start = self._next.get(queue)
                if start is None:
                    start = self._cluster.min_offset(queue)
                if end > start:
                    self._read(queue, start, end)
                self._next[queue] = max(start, end)

    def _queues(self, topic: str) -> list[MessageQueue]:
        """Returns the queues of a topic, none where it is not there yet.

        A broker group that is gone from the name servers may hold rows, so it is waited for.
        """
        known = {queue for queue in self._next if queue.topic == topic}
        patience = Patience(self._cluster.timeout_s)
        while True:
            try:
                found = set(self._cluster.queues([topic], unknown_s=0))
            except UnknownTopicError:
                found = set()
            missing = sorted(known - found)
            if not missing:
                return sorted(found)
            what = f"a look at the rows that are in topic {topic}"
            patience.wait(what, PassingError(f"{queue_name(missing[0])} is not there"))

    def _read(self, queue: MessageQueue, start: int, end: int) -> None:
        wanted = QueueRange(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            start_offset=start,
            end_offset=end,
        )
        pull = RangePull(
            self._cluster,
            wanted,
            group=DEFAULT_GROUP,
            tags=frozenset(),
            fetch_bytes=_FETCH_BYTES,
            fails_on_data_loss=True,
        )
        for run in pull.runs():
            records = records_of(wanted, run, is_whole=True)
            ids = records.find_property(self._row_id_property)
            self._digests.update(_digest(row_id) for row_id in ids.drop_null().to_pylist())


def _digest(row_id: str) -> bytes:
    return hashlib.blake2b(row_id.encode(), digest_size=_DIGEST_BYTES).digest()
