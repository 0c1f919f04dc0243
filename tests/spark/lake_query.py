"""A program for a cluster of Spark: what Spark itself finds in a table, as a line of JSON.

spark-submit lake_query.py FORMAT PATH CATALOG_FILE RESULT_FILE
"""

import json
import sys
from pathlib import Path

from pyspark.sql.functions import col, count, count_distinct, crc32
from pyspark.sql.functions import sum as sum_of

from ledgermq.spark.jobs.running import make_session
from ledgermq.spark.tables import Storage, TablePlace, open_table, read_files
from ledgermq.spark.tables.storage import store_keys


def main(kind: str, path: str, catalog_file: str, result: str) -> None:
    spark = make_session()
    storage = Storage("--path", path, store_keys(spark))
    table = open_table(TablePlace(kind, storage, catalog_file=Path(catalog_file)), create=False)
    rows = read_files(spark, storage, table.files(), table.properties())
    place = ("topic", "brokerName", "queueId", "queueOffset")
    [found] = rows.agg(
        count("*").alias("count"),
        count_distinct(*(col(name) for name in place)).alias("places"),
        sum_of(crc32("body")).alias("checksum"),
    ).collect()
    Path(result).write_text(json.dumps(found.asDict()))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
