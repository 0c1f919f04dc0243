"""The options of the source ``rocketmq``: what a read, a streaming read and a write are told.

Each is parsed once, into typed fields, when the source is made; docs/spark.md has the same table
for users. Nothing here opens a connection.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ledgermq.client import MessageQueue
from ledgermq.spark.access import ACCESS_OPTIONS, Access, access_of
from ledgermq.spark.errors import OptionError
from ledgermq.spark.offsets import FORM, offsets_of_queues, read_offsets
from ledgermq.spark.option_table import (
    MOMENT_ALLOWED,
    Option,
    addresses,
    moments_ms,
    pattern,
    read_table,
    truth,
    whole_number,
    word,
    words,
    write_id,
)
from ledgermq.spark.read_places import READ_FROM_ALLOWED, ReadFrom, read_from
from ledgermq.spark.schema import COLUMN_NAMES, VALUE_COLUMNS, chosen_columns
from ledgermq.spark.values.value_options import (
    READ_VALUE_OPTIONS,
    WRITE_VALUE_OPTIONS,
    ValueOptions,
    value_options,
)

_COUNT_MAX: Final = 2**53
# The largest frame holds this much.
_FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
# Decompressed, the bodies of a batch of rows may be so many times what is fetched at a time.
_UNPACKED_FACTOR: Final = 4
_NAME_SERVER: Final = Option(addresses, "host:port;host:port", is_required=True)
COLUMNS_OPTION: Final = Option(chosen_columns, f"some of {', '.join(COLUMN_NAMES)}", COLUMN_NAMES)
# Of a source that has values, too.
_ANY_COLUMNS: Final = Option(
    lambda text: chosen_columns(text, VALUE_COLUMNS),
    f"{COLUMNS_OPTION.allowed}, with value.format also value and value_error",
    COLUMN_NAMES,
)
_OFFSETS_ALLOWED: Final = f"earliest, latest, or JSON {FORM}"
_MOMENTS: Final = Option(moments_ms, f"{MOMENT_ALLOWED}, or JSON {FORM} with milliseconds")

_READ: Final[Mapping[str, Option]] = {
    "nameServer": _NAME_SERVER,
    **ACCESS_OPTIONS,
    "topic": Option(words, "a topic, or several with commas between"),
    "topics": Option(words, "topics with commas between"),
    "topicPattern": Option(pattern, "a regular expression for whole names of topics"),
    "startingOffsets": Option(read_offsets, _OFFSETS_ALLOWED),
    "startingTimestamp": _MOMENTS,
    "rowsPerPartition": Option(whole_number(1, _COUNT_MAX), "1 or more", 1_000_000),
    "minPartitions": Option(whole_number(1, 100_000), "1 to 100000", 0),
    "tags": Option(word, "tags with || between, such as A || B"),
    "keys": Option(words, "keys with commas between"),
    "columns": _ANY_COLUMNS,
    "failOnDataLoss": Option(truth, "true or false", True),
    "groupId": Option(word, "the name of a consumer group"),
    "fetchBytes": Option(
        whole_number(16_384, _FETCH_BYTES_MAX), f"16384 to {_FETCH_BYTES_MAX}", 4 * 1024 * 1024
    ),
    "fetchBytesPerSecond": Option(whole_number(1024, _COUNT_MAX), "1024 or more, for each task"),
    "timeSlackMs": Option(whole_number(0, 86_400_000), "0 to 86400000"),
    "read.from": Option(read_from, READ_FROM_ALLOWED, ReadFrom.LEADER),
    "readTimeoutMs": Option(whole_number(100, 3_600_000), "100 to 3600000", 30_000),
    **READ_VALUE_OPTIONS,
}
# What decides the columns of a read, before it is known whether it is a stream.
_OF_COLUMNS: Final = frozenset(("topic", "topics", "columns", "readTimeoutMs", *READ_VALUE_OPTIONS))
_BATCH_READ: Final[Mapping[str, Option]] = {
    **_READ,
    "endingOffsets": Option(read_offsets, _OFFSETS_ALLOWED),
    "endingTimestamp": _MOMENTS,
    "filterPushdown": Option(truth, "true or false", False),
}
_STREAM_READ: Final[Mapping[str, Option]] = {
    **_READ,
    "maxRowsPerTrigger": Option(whole_number(1, _COUNT_MAX), "1 or more"),
    "maxBytesPerTrigger": Option(whole_number(1, _COUNT_MAX), "1 or more"),
    "minRowsPerTrigger": Option(whole_number(1, _COUNT_MAX), "1 or more"),
    "maxTriggerDelayMs": Option(whole_number(0, 86_400_000), "0 to 86400000", 15 * 60 * 1000),
}
_WRITE: Final[Mapping[str, Option]] = {
    "nameServer": _NAME_SERVER,
    **ACCESS_OPTIONS,
    "topic": Option(word, "the topic of rows that have none of their own"),
    "producerGroup": Option(word, "the name of a producer group", "ledgermq_spark"),
    "rowIdProperty": Option(word, "the name of a property", "SPARK_ROW_ID"),
    "sendTimeoutMs": Option(whole_number(100, 86_400_000), "100 to 86400000", 60_000),
    "rowsPerSecond": Option(whole_number(1, _COUNT_MAX), "1 or more, for each task"),
    "once": Option(truth, "true or false", False),
    "onceTopics": Option(words, "the topics of the rows, with commas between"),
    "onceSince": Option(offsets_of_queues, f"JSON {FORM}"),
    "writeId": Option(write_id, "letters, digits and -, 64 at most"),
    **WRITE_VALUE_OPTIONS,
}


@dataclass(slots=True, frozen=True, kw_only=True)
class ReadOptions:
    """What a batch or streaming read is told."""

    name_servers: tuple[str, ...]
    access: Access
    # Names; empty when there is a pattern.
    topics: tuple[str, ...]
    # A regular expression that whole names must match; "" when there are names.
    topic_pattern: str
    # earliest, latest, or offsets of some queues.
    starting_offsets: str | dict[MessageQueue, int]
    ending_offsets: str | dict[MessageQueue, int]
    # ms since 1970 of the store time; None: by offset.
    # One for each of some queues: the others are read from the oldest message, to the last.
    starting_ms: int | dict[MessageQueue, int] | None
    # Exclusive.
    ending_ms: int | dict[MessageQueue, int] | None
    # How far the store times of a queue may be out of order; None: not said.
    time_slack_ms: int | None
    rows_per_partition: int
    # 0: no such wish.
    min_partitions: int
    # Empty: all.
    tags: frozenset[str]
    keys: frozenset[str]
    columns: tuple[str, ...]
    fails_on_data_loss: bool
    # None publishes no progress.
    group: str | None
    fetch_bytes: int
    # How long a read may make no progress, leader changes included.
    timeout_s: float
    is_pushdown_on: bool
    # None: all there is.
    rows_per_trigger: int | None
    bytes_per_trigger: int | None
    # A micro-batch waits for so many, until the first of them has waited for the delay.
    min_rows_per_trigger: int | None
    max_trigger_delay_s: float
    # Of each task; None: as fast as it goes.
    fetch_bytes_per_second: int | None
    value: ValueOptions = ValueOptions()
    # Which members of a broker group are asked for messages; for ends of queues the leader is.
    read_from: ReadFrom = ReadFrom.LEADER

    @property
    def body_bytes_max(self) -> int:
        """Decompressed bodies that a batch of rows may have, where they are more than one."""
        return _UNPACKED_FACTOR * self.fetch_bytes

    @property
    def name_server(self) -> str:
        """The addresses as a user writes them."""
        return ";".join(self.name_servers)


@dataclass(slots=True, frozen=True, kw_only=True)
class WriteOptions:
    """What a batch or streaming write is told."""

    name_servers: tuple[str, ...]
    access: Access
    # None: each row names its topic.
    topic: str | None
    producer_group: str
    row_id_property: str
    timeout_s: float
    # Of each task; None: as fast as it goes.
    rows_per_second: int | None
    # Whether a task that runs again leaves out what is stored.
    is_once: bool = False
    # Topics that rows may name then; empty: that of the option.
    once_topics: tuple[str, ...] = ()
    # Where their queues ended before the write; None: as they end when it is planned.
    once_since: dict[MessageQueue, int] | None = None
    # None: a new one.
    write_id: str | None = None
    value: ValueOptions = ValueOptions()


def read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Returns the options of a read.

    Raises:
        OptionError: one is unknown, missing, not allowed, or contradicts another.
    """
    values = read_table(given, _STREAM_READ if is_stream else _BATCH_READ)
    topics = _topics(values)
    value = value_options(values, topics, is_write=False)
    return ReadOptions(
        name_servers=values["nameServer"],
        access=access_of(values),
        topics=topics,
        topic_pattern=values["topicPattern"] or "",
        starting_offsets=_bound(values, "starting", "latest" if is_stream else "earliest"),
        ending_offsets="latest" if is_stream else _bound(values, "ending", "latest"),
        starting_ms=values["startingTimestamp"],
        ending_ms=values.get("endingTimestamp"),
        time_slack_ms=values["timeSlackMs"],
        rows_per_partition=values["rowsPerPartition"],
        min_partitions=values["minPartitions"],
        tags=_tags(values["tags"]),
        keys=frozenset(values["keys"] or ()),
        columns=_columns(values, value),
        fails_on_data_loss=values["failOnDataLoss"],
        group=values["groupId"],
        fetch_bytes=values["fetchBytes"],
        timeout_s=values["readTimeoutMs"] / 1000,
        is_pushdown_on=values.get("filterPushdown", False),
        rows_per_trigger=values.get("maxRowsPerTrigger"),
        bytes_per_trigger=values.get("maxBytesPerTrigger"),
        min_rows_per_trigger=values.get("minRowsPerTrigger"),
        max_trigger_delay_s=values.get("maxTriggerDelayMs", 0) / 1000,
        fetch_bytes_per_second=values["fetchBytesPerSecond"],
        value=value,
        read_from=values["read.from"],
    )


class ColumnOptions(NamedTuple):
    """What decides the columns of a read."""

    columns: tuple[str, ...]
    value: ValueOptions
    # How long a registry may be gone.
    timeout_s: float


def column_options(given: Mapping[str, str]) -> ColumnOptions:
    """Returns what decides the columns, before all else is known of a read.

    Raises:
        OptionError: one of these is not allowed, or contradicts another.
    """
    names = {name.lower() for name in _OF_COLUMNS}
    chosen = {key: text for key, text in given.items() if key.lower() in names}
    values = read_table(chosen, {name: _READ[name] for name in _READ if name in _OF_COLUMNS})
    topics = values["topic"] or values["topics"] or ()
    value = value_options(values, topics, is_write=False)
    return ColumnOptions(_columns(values, value), value, values["readTimeoutMs"] / 1000)


def _columns(values: Mapping[str, Any], value: ValueOptions) -> tuple[str, ...]:
    """The columns that are chosen; values and their errors are, where none of both is named."""
    columns: tuple[str, ...] = values["columns"]
    are_named = any(name in VALUE_COLUMNS for name in columns)
    if are_named and not value.is_typed:
        raise OptionError("columns", ",".join(columns), "value only with another value.format")
    return columns if are_named or not value.is_typed else (*columns, *VALUE_COLUMNS)


def column_option(given: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the columns that are chosen, before all else is known of a read.

    Raises:
        OptionError: there is no such column.
    """
    chosen = {key: text for key, text in given.items() if key.lower() == "columns"}
    columns: tuple[str, ...] = read_table(chosen, {"columns": COLUMNS_OPTION})["columns"]
    return columns


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Returns the options of a write.

    Raises:
        OptionError: one is unknown, missing or not allowed.
    """
    values = read_table(given, _WRITE)
    topic = values["topic"]
    return WriteOptions(
        name_servers=values["nameServer"],
        access=access_of(values),
        topic=topic,
        producer_group=values["producerGroup"],
        row_id_property=values["rowIdProperty"],
        timeout_s=values["sendTimeoutMs"] / 1000,
        rows_per_second=values["rowsPerSecond"],
        is_once=_is_once(values),
        once_topics=values["onceTopics"] or (),
        once_since=values["onceSince"],
        write_id=values["writeId"],
        value=value_options(values, (topic,) if topic else (), is_write=True),
    )


def _is_once(values: Mapping[str, Any]) -> bool:
    """Tells whether rows are stored once; what belongs to that is for nothing else."""
    for name in ("onceTopics", "onceSince", "writeId"):
        if values[name] is not None and not values["once"]:
            raise OptionError("once", "false", f"true where {name} is given")
    return bool(values["once"])


def with_tags(options: ReadOptions, tags: frozenset[str]) -> ReadOptions:
    """Returns the options of the same read of fewer tags.

    Args:
        options: of the read.
        tags: at least one.
    """
    return dataclasses.replace(options, tags=tags)


def _topics(values: Mapping[str, Any]) -> tuple[str, ...]:
    names = [name for name in ("topic", "topics", "topicPattern") if values[name] is not None]
    if len(names) != 1:
        allowed = "exactly one of topic, topics and topicPattern"
        raise OptionError("topic", None if not names else " and ".join(names), allowed)
    topics: tuple[str, ...] = values["topic"] or values["topics"] or ()
    return topics


def _bound(values: Mapping[str, Any], which: str, default: str) -> str | dict[MessageQueue, int]:
    """The offsets of one end, which may not be given twice."""
    offsets: str | dict[MessageQueue, int] | None = values[f"{which}Offsets"]
    moment: object = values[f"{which}Timestamp"]
    if offsets is not None and moment is not None:
        allowed = f"{which}Offsets or {which}Timestamp, not both"
        raise OptionError(f"{which}Timestamp", str(moment), allowed)
    return default if offsets is None else offsets


def _tags(text: str | None) -> frozenset[str]:
    if text is None or text.strip() == "*":
        return frozenset()
    return frozenset(part.strip() for part in re.split(r"\|\|", text) if part.strip())
