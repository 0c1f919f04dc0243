"""An archive as a table of Delta Lake or Apache Iceberg, which other engines read.

    <root>/data/<writer>-<batch>-<uuid>/slot=.../*.parquet   of one micro-batch, by the workers
    <root>/data/joined-<uuid>/slot=.../*.parquet             small files of one partition, joined
    <root>/_delta_log/ or <root>/metadata/                   the table's own

Workers write Parquet files; then the driver adds them to the table in one commit, which also notes
the writer (the id of the streaming query, which its checkpoint keeps) and the number of the batch.
A batch that runs again finds its number in the table and adds nothing; one whose commit was lost
writes files anew, and the former ones belong to no table. So each message is in the table once,
whatever is killed, also with two drivers on one checkpoint, as long as that is kept. The commit
needs no Java part: Delta by deltalake, Iceberg by pyiceberg, both of them extras.

A table is partitioned by topic and date. The files hold both columns, too, and which partition a
file belongs to is read from its footer: names of topics are in no path.
"""

from ledgermq.spark.tables.files import TableFile, read_files
from ledgermq.spark.tables.formats import ArchiveTable, TablePlace, open_table
from ledgermq.spark.tables.storage import Storage

__all__ = ["ArchiveTable", "Storage", "TableFile", "TablePlace", "open_table", "read_files"]
