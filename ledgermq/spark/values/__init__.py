"""Typed values: bodies of messages as a column of the type that a schema gives, and back.

The driver finds the schema (`schemas.py`: a file, or a registry) and what Spark calls it; the tasks
decode and encode (`columns.py`, `rows.py`) by one codec for each format: `text`, `json`, `avro` and
`protobuf`. Avro and Protobuf need the extra ``ledgermq[values]``. Bodies are hostile: what one may
cost is bounded in `limits.py`, and a body that is refused is a null with a reason.
"""
