"""Whether the checkpoint of a stream and a table belong to each other.

A stream whose checkpoint is gone begins again, and all that is in the table would be in it twice;
one whose checkpoint is of another table leaves out what that one has. Both are refused before a
row is read. Several jobs may write to one table, each with a checkpoint and topics of its own.
"""

import argparse
import json
import re
from typing import Final

from ledgermq.spark.errors import OptionError
from ledgermq.spark.tables import ArchiveTable, Storage

_METADATA: Final = "metadata"


def checkpoint_place(storage: Storage, given: str | None) -> Storage:
    """Returns where the checkpoint is: beside the table, or where `--checkpoint` says.

    Raises:
        OptionError: it is in the table.
    """
    if given is None:
        return Storage("--checkpoint", f"{storage.spark_root}_checkpoint", storage.keys)
    # Of the same kinds as the table: a checkpoint may lie in a bucket, too.
    place = Storage("--checkpoint", given, storage.keys)
    if f"{place.spark_root}/".startswith(f"{storage.spark_root}/"):
        raise OptionError("--checkpoint", given, "a place beside the table, not in it")
    return place


def check_belongs(table: ArchiveTable, checkpoint: Storage, options: argparse.Namespace) -> None:
    """Checks that going on from a checkpoint leaves each message in the table once.

    Args:
        table: which is written to.
        checkpoint: where it is, or will be.
        options: of the job, with its topics.

    Raises:
        OptionError: messages would be there twice, or be missing.
    """
    metadata = checkpoint.read(_METADATA)
    if metadata is None:
        for topic in sorted({file.topic for file in table.files()}):
            if _is_read(topic, options):
                allowed = f"the checkpoint with which {topic} came into the table: with a new one"
                raise OptionError(
                    "--checkpoint", checkpoint.spark_root, f"{allowed} it would be in it twice"
                )
        return
    batches = [int(name) for name in checkpoint.names("commits") if name.isdecimal()]
    if batches and not table.holds(_writer(metadata, checkpoint), max(batches)):
        allowed = f"the checkpoint of this table, which does not have batch {max(batches)} of this"
        raise OptionError("--checkpoint", checkpoint.spark_root, allowed)


def _writer(metadata: bytes, checkpoint: Storage) -> str:
    """Returns the id of the streaming query that a checkpoint belongs to."""
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = f"a checkpoint of Spark; its file {_METADATA} cannot be read"
        raise OptionError("--checkpoint", checkpoint.spark_root, allowed) from error


def _is_read(topic: str, options: argparse.Namespace) -> bool:
    if options.pattern:
        return re.fullmatch(options.pattern, topic) is not None
    return topic in [name.strip() for name in options.topic.split(",")]
