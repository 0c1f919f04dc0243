"""The data pipeline: sources for Spark, and jobs made of them.

Contract: a read gives committed messages only, each row of a fixed range every time, or raises an
error that names what is missing; never fewer rows in silence. The room needs
the extra ``ledgermq[spark]``, and Java 17 to run. Read source.py first; offsets.py,
partitions.py and options.py decide without I/O, record_columns.py makes columns of records.
"""

from ledgermq.spark.errors import SparkSourceError
from ledgermq.spark.progress import lag_of
from ledgermq.spark.segment_source import SegmentsDataSource
from ledgermq.spark.source import RocketMQDataSource

__all__ = ["RocketMQDataSource", "SegmentsDataSource", "SparkSourceError", "lag_of"]
