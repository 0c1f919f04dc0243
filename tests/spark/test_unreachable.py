"""What a task says that cannot reach the cluster, while other workers may: host, address, cause."""

import socket
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.taskcontext import TaskContext

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import ClusterError
from ledgermq.spark.once.plan import OncePlan
from ledgermq.spark.options import write_options
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.writer import RowWriter
from tests.free_ports import free_ports
from tests.spark import direct

HERE = rf"asked by the worker on {socket.gethostname()}$"
QUEUE = MessageQueue("Far", "a", 0)


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_task_that_reads_names_its_host(nobody: str, is_stream: bool) -> None:
    source = direct.source_of({"nameServer": nobody, "topic": "Far", "readTimeoutMs": 200})
    reader: Any = (source.streamReader if is_stream else source.reader)(source.schema())
    wanted = QueueRange(topic="Far", broker_name="a", queue_id=0, start_offset=0, end_offset=10)
    with pytest.raises(ClusterError, match=rf"no connection to {nobody}: .*refused.*{HERE}"):
        list(reader.read(wanted))


@pytest.mark.parametrize("is_once", [False, True])
def test_a_task_that_writes_names_its_host(nobody: str, is_once: bool) -> None:
    schema = StructType([StructField("body", BinaryType())])
    options = write_options({"nameServer": nobody, "topic": "Far", "sendTimeoutMs": "300"})
    plan = OncePlan(write_id="w", topics=("Far",), since={QUEUE: 0}, turns_at=QUEUE)
    writer = RowWriter(options, schema, None, plan if is_once else None)
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x"], pa.binary())})
    context = SimpleNamespace(partitionId=lambda: 0)
    with (
        mock.patch.object(TaskContext, "get", lambda: context),
        pytest.raises(ClusterError, match=rf"{nobody}.*{HERE}"),
    ):
        writer.write(iter([batch]))
