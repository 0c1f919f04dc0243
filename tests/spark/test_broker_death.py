"""A broker that dies in the midst of a read: the read waits for it, or says that it is gone."""

import itertools
from pathlib import Path

import pytest

from ledgermq.spark import SparkSourceError
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.topics import send_numbered

COUNT = 1000
# A broker starts twice and a busy machine takes its time.
pytestmark = pytest.mark.timeout(900)


def test_a_read_goes_on_when_its_broker_is_back_and_ends_when_it_stays_away(
    tmp_path: Path,
) -> None:
    with UpCluster(tmp_path, node_count=1) as cluster:
        send_numbered(cluster.name_server, "Dying", COUNT)
        options = {"nameServer": cluster.name_server, "topic": "Dying", "columns": "body"}
        # Little at a time, so that most is still to come; as long as a slow machine may need.
        source = direct.source_of({**options, "fetchBytes": 16384, "readTimeoutMs": 800_000})
        reader = source.reader(source.schema())
        parts = reader.partitions()
        batches = itertools.chain.from_iterable(map(reader.read, parts))
        rows = next(batches).to_pylist()
        assert len(rows) < COUNT / len(parts)
        node = cluster.find_leader()
        assert node is not None
        cluster.kill(node)
        rows += [row for batch in batches for row in batch.to_pylist()]
        assert sorted(int(row["body"].split()[1]) for row in rows) == list(range(COUNT))
    gone = direct.source_of({**options, "readTimeoutMs": 300})
    with pytest.raises(SparkSourceError, match=r"topic Dying: .*refused.* \(tried for 0.3 s\)"):
        list(gone.reader(gone.schema()).read(parts[0]))
