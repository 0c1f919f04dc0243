"""What can go wrong between Spark and a cluster or its files; each text names what was found.

Spark shows the text of an error with the traceback of the process that raised it, so each class
builds a whole sentence from its fields: what, where, and what would be allowed.
"""


class SparkSourceError(Exception):
    """Base class of all errors of this room."""


class OptionError(SparkSourceError):
    """An option is unknown, missing or has a value that is not allowed."""

    def __init__(self, option: str, value: str | None, allowed: str) -> None:
        if value is not None and "://" in value and "@" in value:
            # An address with an account, which is not repeated: errors stand in logs.
            value = f"{value.partition('://')[0]}://...@{value.rpartition('@')[2]}"
        # Pickled by its arguments when it goes from a worker to the driver.
        super().__init__(option, value, allowed)
        self.option = option
        # None when the option was not given.
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        shown = "missing" if self.value is None else repr(self.value)
        return f"option {self.option} is {shown}; allowed: {self.allowed}"


class PathNotSeenError(SparkSourceError):
    """A file that the driver has planned to read is not there where a task runs."""

    def __init__(self, path: str, worker: str) -> None:
        super().__init__(path, worker)
        self.path = path
        # Names the host and the working directory.
        self.worker = worker

    def __str__(self) -> str:
        return (
            f"{self.path} is not there for {self.worker}: either it was removed, or the directory"
            " is not mounted under this path on every worker"
        )


class ObjectStoreError(SparkSourceError):
    """An object store did not give what it was asked for, in all tries."""

    def __init__(self, path: str, reason: str, worker: str) -> None:
        super().__init__(path, reason, worker)
        self.path = path
        self.reason = reason
        # Names the host and the working directory.
        self.worker = worker

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; asked by {self.worker}"


class UnknownTopicError(SparkSourceError):
    """No name server knows a topic, or none fits a pattern."""

    def __init__(self, topic: str, name_server: str) -> None:
        super().__init__(topic, name_server)
        self.topic = topic
        self.name_server = name_server

    def __str__(self) -> str:
        return f"topic {self.topic!r} is unknown to the name server {self.name_server}"


class OffsetRangeError(SparkSourceError):
    """The offsets that were asked for are no range of a queue."""

    def __init__(self, queue: str, start_offset: int, end_offset: int, reason: str) -> None:
        super().__init__(queue, start_offset, end_offset, reason)
        self.queue = queue
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.reason = reason

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset} of {self.queue}: {self.reason}"


class OffsetsRemovedError(SparkSourceError):
    """Messages that were to be read are no longer there."""

    def __init__(self, queue: str, wanted_offset: int, found_offset: int) -> None:
        super().__init__(queue, wanted_offset, found_offset)
        self.queue = queue
        self.wanted_offset = wanted_offset
        # The next offset that is there.
        self.found_offset = found_offset

    def __str__(self) -> str:
        return (
            f"offsets {self.wanted_offset} to {self.found_offset} of {self.queue} were removed by"
            " retention before they were read; to go on with what is left, set"
            " failOnDataLoss=false"
        )


class ClusterError(SparkSourceError):
    """A broker or name server did not do what it was asked for, in all the time there was."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class CorruptDataError(SparkSourceError):
    """Bytes of a broker or a file are not what they must be."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        # File and offset, or queue and offset.
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class RowSchemaError(SparkSourceError):
    """The columns of a read or write are not what this source knows."""

    def __init__(self, column: str, found: str, allowed: str) -> None:
        super().__init__(column, found, allowed)
        self.column = column
        self.found = found
        self.allowed = allowed

    def __str__(self) -> str:
        return f"column {self.column} is {self.found}; allowed: {self.allowed}"


class RowError(SparkSourceError):
    """A row cannot be sent as a message; the task fails and nothing of it is skipped."""

    def __init__(self, row: str, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row} is no message: {self.reason}"


class ValueSchemaError(SparkSourceError):
    """The schema of values cannot be used."""

    def __init__(self, schema: str, reason: str) -> None:
        super().__init__(schema, reason)
        # A file, or a subject or id of a registry.
        self.schema = schema
        self.reason = reason

    def __str__(self) -> str:
        return f"schema {self.schema}: {self.reason}"


class MissingPackageError(SparkSourceError):
    """What was asked for needs a package that is not installed where it is used."""

    def __init__(self, what: str, package: str, extra: str, where: str) -> None:
        super().__init__(what, package, extra, where)
        self.what = what
        self.package = package
        self.extra = extra
        # On which machines it has to be.
        self.where = where

    def __str__(self) -> str:
        return (
            f"{self.what} needs the package {self.package}, {self.where}:"
            f" install LedgerMQ with its extra {self.extra}"
        )


class BodyError(SparkSourceError):
    """A body is no value of the schema, and the read was told to fail then."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        # Queue and offset.
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: the body is no value: {self.reason}; value.errors is 'fail'"


class TableFormatError(SparkSourceError):
    """A table is not one that archive and replay can write to or read."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"the table {self.place} {self.reason}"


class TableReadError(SparkSourceError):
    """What a table holds cannot be told, or not as a whole."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"the table {self.place} cannot be reached or read: {self.reason}"


class TableCommitError(SparkSourceError):
    """A commit to a table failed, or whether it succeeded is not known."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the commit to the table {self.place} failed: {self.reason}; started again, the job"
            " goes on there, and adds nothing twice"
        )
