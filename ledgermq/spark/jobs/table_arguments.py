"""Arguments of the jobs that write or read an archive as a table of Delta Lake or Iceberg.

--format parquet|delta|iceberg   default: parquet, which is no table
--catalog NAME                   of Iceberg: one of pyiceberg's configuration
--catalog-file FILE              of Iceberg: a file of SQLite; default: <path>_catalog.db
--table NAMESPACE.NAME           of Iceberg: its name in the catalog
"""

import argparse
import re
from pathlib import Path
from typing import Any, Final

from ledgermq.spark.errors import OptionError
from ledgermq.spark.paths import local_path
from ledgermq.spark.tables import Storage, TablePlace
from ledgermq.spark.tables.formats import DEFAULT_TABLE, FORMATS
from ledgermq.spark.tables.storage import store_keys

_NAME: Final = re.compile(r"\w{1,100}(\.\w{1,100})+", re.ASCII)
_OF_ICEBERG: Final = ("catalog", "catalog_file", "table")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--format", choices=("parquet", *FORMATS), default="parquet", help="of the archive"
    )
    parser.add_argument("--catalog", metavar="NAME", help="of Iceberg: one that is configured")
    parser.add_argument("--catalog-file", metavar="FILE", help="of Iceberg: a file of SQLite")
    parser.add_argument("--table", metavar="NAMESPACE.NAME", help="of Iceberg: in the catalog")


def is_table(options: argparse.Namespace) -> bool:
    """Tells whether a table is meant.

    Raises:
        OptionError: an argument belongs to another format.
    """
    for name in _OF_ICEBERG:
        value = getattr(options, name)
        if value is not None and options.format != "iceberg":
            raise OptionError(f"--{name.replace('_', '-')}", value, "with --format iceberg only")
    if options.table is not None and not _NAME.fullmatch(options.table):
        raise OptionError("--table", options.table, "NAMESPACE.NAME of letters, digits and _")
    if options.catalog is not None and options.catalog_file is not None:
        raise OptionError("--catalog-file", options.catalog_file, "without --catalog only")
    return bool(options.format != "parquet")


def table_place(spark: Any, options: argparse.Namespace) -> TablePlace:
    """Returns which table is meant.

    Raises:
        OptionError: the path is no place for a table, or its catalog has none.
    """
    storage = Storage("--path", options.path, store_keys(spark))
    file: Path | None = None
    if options.catalog_file is not None:
        file = local_path("--catalog-file", options.catalog_file)
    elif storage.is_local:
        file = Path(f"{storage.directory}_catalog.db")
    table = options.table or DEFAULT_TABLE
    return TablePlace(options.format, storage, table, options.catalog, file)
