"""The data source ``rocketmq``: what Spark is given to register, and what it asks for by name.

    spark.dataSource.register(RocketMQDataSource)
    spark.read.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("topic", "Orders")

Options are checked before anything is opened; docs/spark.md lists them.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ledgermq.spark.errors import OptionError
from ledgermq.spark.once.plan import plan_once
from ledgermq.spark.options import column_options, read_options, write_options
from ledgermq.spark.reader import FilteringReader, RangeReader
from ledgermq.spark.schema import message_schema
from ledgermq.spark.stream_reader import TopicStreamReader
from ledgermq.spark.values.schemas import plan_values
from ledgermq.spark.writer import RowWriter, StreamRowWriter, check_write


class RocketMQDataSource(DataSource):
    """Topics of a cluster of LedgerMQ or RocketMQ as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns that the option `columns` chooses; a schema of values is looked up."""
        columns, value, timeout_s = column_options(self.options)
        plan = plan_values(value, timeout_s)
        return message_schema(columns, None if plan is None else plan.spark_type)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        options = read_options(self.options, is_stream=False)
        plan = plan_values(options.value, options.timeout_s)
        if options.is_pushdown_on:
            return FilteringReader(options, schema, plan)
        return RangeReader(options, schema, plan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read."""
        options = read_options(self.options, is_stream=True)
        return TopicStreamReader(options, schema, plan_values(options.value, options.timeout_s))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        options = write_options(self.options)
        plan = plan_values(options.value, options.timeout_s)
        check_write(schema, options, plan, overwrite=overwrite)
        return RowWriter(options, schema, plan, plan_once(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write."""
        options = write_options(self.options)
        if options.is_once:
            raise OptionError("once", "true", "false for a stream: its rows are sent at least once")
        plan = plan_values(options.value, options.timeout_s)
        check_write(schema, options, plan, overwrite=overwrite)
        return StreamRowWriter(options, schema, plan)
