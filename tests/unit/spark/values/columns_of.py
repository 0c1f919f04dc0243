"""Bodies as the columns of a read, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from ledgermq.spark.batches import arrow_schema
from ledgermq.spark.options import read_options
from ledgermq.spark.values.columns import BodyReader
from ledgermq.spark.values.schemas import ValuePlan, plan_values


def plan_of(**given: object) -> ValuePlan:
    """The plan of a read; names have _ for dots, and stand for themselves without `value.`."""
    options = {f"value.{name.replace('_', '.')}": str(value) for name, value in given.items()}
    read = read_options(
        {"nameServer": "h:1", "topic": "T", "readTimeoutMs": "2000", **options}, is_stream=False
    )
    plan = plan_values(read.value, read.timeout_s)
    assert plan is not None
    return plan


def decoded(plan: ValuePlan, bodies: list[bytes]) -> list[tuple[Any, str | None]]:
    """Value and error of each body."""
    kind = arrow_schema(StructType([StructField("value", plan.spark_type)])).field(0).type
    values, errors = BodyReader(plan).columns(
        pa.array(bodies, pa.binary()), kind, lambda row: f"row {row}"
    )
    assert values.type == kind
    return list(zip(values.to_pylist(), errors.to_pylist(), strict=True))


def schema_file(folder: Path, content: bytes) -> Path:
    """A file with a schema."""
    path = folder / "schema"
    path.write_bytes(content)
    return path
