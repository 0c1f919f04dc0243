"""The data source ``rocketmq.segments``: the commit log of a stopped or running broker, as files.

The rows are those of the source ``rocketmq``, read past the broker: one partition for each segment
file, from a local path, one that all workers mount, or an object store by ranges. Only what is
committed is read, and every checksum is compared unless that is switched off.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from ledgermq.spark.batches import arrow_schema, to_batch
from ledgermq.spark.option_table import (
    MOMENT_ALLOWED,
    Option,
    moment_ms,
    read_table,
    truth,
    word,
    words,
)
from ledgermq.spark.options import COLUMNS_OPTION, column_option
from ledgermq.spark.record_columns import RecordColumns, is_one_of
from ledgermq.spark.record_fields import Booleans
from ledgermq.spark.schema import BODY, check_read_schema, message_schema
from ledgermq.spark.segment_plan import SegmentRange, find_log, plan_segments
from ledgermq.spark.segment_walk import read_segment
from ledgermq.spark.tables.storage import STORE_SETTINGS, StoreKeys

# Decompressed bodies of a batch of rows, where they are more than one.
_BODY_BYTES_MAX: Final = 16 * 1024 * 1024
_OPTIONS: Final[Mapping[str, Option]] = {
    "path": Option(words, "directories or s3a: URLs with commas between", is_required=True),
    "topics": Option(words, "topics with commas between"),
    "startingTimestamp": Option(moment_ms, MOMENT_ALLOWED),
    "endingTimestamp": Option(moment_ms, MOMENT_ALLOWED),
    "columns": COLUMNS_OPTION,
    "brokerName": Option(word, "what stands in the column brokerName"),
    "verify": Option(truth, "true or false", True),
    "openSegment": Option(truth, "true or false", True),
    **{name: Option(word, "as for Hadoop's client of S3") for name in STORE_SETTINGS},
}


@dataclass(slots=True, frozen=True, kw_only=True)
class SegmentOptions:
    """What a read of segment files is told."""

    paths: tuple[str, ...]
    # Empty: all.
    topics: frozenset[str]
    # ms since 1970 of the store time.
    starting_ms: int | None
    # Exclusive.
    ending_ms: int | None
    broker_name: str | None
    # Compares checksums.
    verifies: bool
    # Whether the last file of a log without a ledger is read, too.
    reads_open_segment: bool
    # Of the object store.
    keys: StoreKeys


def segment_options(given: Mapping[str, str]) -> SegmentOptions:
    """Returns the options of a read.

    Raises:
        OptionError: one is unknown, missing or not allowed.
    """
    values = read_table(given, _OPTIONS)
    return SegmentOptions(
        paths=values["path"],
        topics=frozenset(values["topics"] or ()),
        starting_ms=values["startingTimestamp"],
        ending_ms=values["endingTimestamp"],
        broker_name=values["brokerName"],
        verifies=values["verify"],
        reads_open_segment=values["openSegment"],
        keys=StoreKeys.of({name: values[name] for name in STORE_SETTINGS if values[name]}),
    )


class SegmentReader(DataSourceReader):
    """Reads segment files; holds nothing open."""

    def __init__(self, options: SegmentOptions, schema: StructType) -> None:
        """Takes what the read is told.

        Raises:
            RowSchemaError: the schema is not one of messages.
        """
        check_read_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plans one partition for each file.

        Raises:
            SparkSourceError: there is no log, or it has a hole.
        """
        return [
            part
            for path in self._options.paths
            for part in plan_segments(
                find_log(path, self._options.keys),
                reads_open_segment=self._options.reads_open_segment,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Reads one file as record batches.

        Raises:
            CorruptDataError: something in it is not what it must be.
        """
        if not isinstance(partition, SegmentRange):
            return
        schema = arrow_schema(self._schema)
        constants = {"brokerName": self._options.broker_name}
        options = self._options
        for records in read_segment(partition, verifies=options.verifies, keys=options.keys):
            chosen = records.select(self._mask(records))
            chosen.refuse_inner_batches()
            has_bodies = BODY in schema.names
            for part in chosen.parts(_BODY_BYTES_MAX) if has_bodies else (chosen,):
                if len(part):
                    yield to_batch(part, schema, constants)

    def _mask(self, records: RecordColumns) -> Booleans:
        """Tells which records a consumer could see, and the options want."""
        options = self._options
        mask: Booleans = (records.sys_flags & TRANSACTION_PREPARED) == 0
        if options.starting_ms is not None:
            mask &= records.store_ms >= options.starting_ms
        if options.ending_ms is not None:
            mask &= records.store_ms < options.ending_ms
        if options.topics:
            mask &= is_one_of(records.topics, options.topics)
        return np.asarray(mask, np.bool_)


class SegmentsDataSource(DataSource):
    """Segment files of a commit log as a table."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "rocketmq.segments"

    def schema(self) -> StructType:
        """The columns that the option `columns` chooses."""
        return message_schema(column_option(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return SegmentReader(segment_options(self.options), schema)
