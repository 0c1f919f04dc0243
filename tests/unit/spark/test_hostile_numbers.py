"""Numbers that others say cost no memory and no time."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DecimalType

from ledgermq.spark.batches import records_of
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.pulling import Run
from ledgermq.spark.values.json_values import JsonCodec
from ledgermq.spark.values.limits import BadValueError


@pytest.mark.parametrize("end", [5, 1 << 40, 1 << 62])
def test_end_that_a_broker_says_takes_no_memory(end: int) -> None:
    wanted = QueueRange(topic="t", broker_name="b", queue_id=0, start_offset=0, end_offset=1 << 62)
    with pytest.raises(CorruptDataError, match=f"offsets 0 to {end} were read, 0 messages came"):
        records_of(wanted, Run(b"", 0, end), is_whole=True)
    assert len(records_of(wanted, Run(b"", 0, end), is_whole=False)) == 0


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", "-3e77"])
def test_decimal_of_more_digits_than_any_has_is_refused(text: str) -> None:
    codec = JsonCodec(DecimalType(38, 10))
    with pytest.raises(BadValueError, match="the schema says decimal"):
        codec.decode(f'"{text}"'.encode())
    assert codec.decode(b'"12.5"') is not None
