"""OnceSender: sends the rows of one try of a task that are not stored yet, and none of them twice.

Rows go in chunks. Before each, the turn is renewed; when it was not this try's all the time, what
is stored is looked at again. A chunk ends when each of its sends has an answer or will have none.
Of those without a good answer nobody knows whether they are stored: after a pause, in which what is
on its way arrives or is lost, they are looked for, and those that are not there are sent again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from ledgermq.client import ClientError, Message, MessageError, ProducerConfig
from ledgermq.spark.cluster import Patience
from ledgermq.spark.errors import ClusterError, RowError
from ledgermq.spark.message_rows import RowMessage
from ledgermq.spark.options import WriteOptions

# Of a chunk; below what a producer has on its way at a time, so that no row waits for room.
_ROWS_MAX: Final = 1000
_BYTES_MAX: Final = 16 * 1024 * 1024
# How long a row may take until it is written, and its answer. Together with the time for which a
# turn is counted on it is less than that for which a broker keeps it; see turn.py.
_SEND_S: Final = 10.0
_SETTLE_S: Final = 2.0
# With a limit of rows a second, chunks are so many a second.
_CHUNKS_PER_SECOND: Final = 10


class _Failure(NamedTuple):
    """Why a row was not acknowledged."""

    row_id: str
    error: ClientError


class Sends(Protocol):
    """What sends."""

    async def send(self, message: Message, *, ordering_key: str | None = None) -> object:
        """Sends a message, at most once, and waits until it is acknowledged."""


class Holds(Protocol):
    """Whose turn it is."""

    @property
    def is_valid(self) -> bool:
        """True while no other try can have the turn."""

    def hold(self) -> bool:
        """Returns when it is this try's turn; True when it begins anew."""

    def give_back(self) -> None:
        """Lets another try begin."""


class Looks(Protocol):
    """What is stored."""

    def look(self) -> None:
        """Reads what has come up to now."""

    def __contains__(self, row_id: str) -> bool: ...


class OnceSender:
    """Sends for one try; its connections are the caller's."""

    def __init__(
        self,
        producer: Sends,
        turn: Holds,
        stored: Looks,
        options: WriteOptions,
        topics: Iterable[str],
        *,
        settle_s: float = _SETTLE_S,
    ) -> None:
        """Asks for nothing yet.

        Args:
            producer: made with `producer_config`.
            turn: of the task.
            stored: the rows that are in the topics.
            options: of the write.
            topics: those that rows may name.
            settle_s: after this long a request is stored or lost whose answer did not come.
        """
        self._producer = producer
        self._turn = turn
        self._stored = stored
        self._options = options
        self._topics = frozenset(topics)
        self._settle_s = settle_s
        self._patience = Patience(options.timeout_s)
        # True while nobody knows what became of a row.
        self._is_in_doubt = False
        self._sent = 0
        self._started_s = time.monotonic()

    async def send(self, rows: Iterable[RowMessage]) -> None:
        """Sends those of some rows that are not stored yet; all are stored on return.

        Raises:
            RowError: a row cannot be sent.
            ClusterError: a broker refused a row, or none was acknowledged for the whole timeout.
        """
        left = deque(rows)
        for row in left:
            if row.message.topic not in self._topics:
                reason = f"its topic {row.message.topic} is none of onceTopics"
                raise RowError(self._id_of(row), reason)
        # Between two calls Spark made rows, for as long as that took.
        self._patience.progressed()
        while left:
            self._begin()
            chunk = self._next_chunk(left)
            failed, errors = await self._try(chunk)
            self._sent += len(chunk) - len(failed)
            if len(failed) < len(chunk):
                self._patience.progressed()
            if failed:
                await self._look_for_failed(errors)
                left.extendleft(reversed(failed))
            await self._pace()

    def close(self) -> None:
        """Ends the turn; where rows are in doubt, the next try waits until none is on its way."""
        if not self._is_in_doubt:
            self._turn.give_back()

    def _begin(self) -> None:
        while self._turn.hold() or not self._turn.is_valid:
            self._stored.look()

    def _next_chunk(self, left: deque[RowMessage]) -> list[RowMessage]:
        count_max = _ROWS_MAX
        if self._options.rows_per_second:
            count_max = min(count_max, self._options.rows_per_second // _CHUNKS_PER_SECOND + 1)
        chunk: list[RowMessage] = []
        size = 0
        while left and len(chunk) < count_max and (not chunk or size < _BYTES_MAX):
            row = left.popleft()
            if self._id_of(row) not in self._stored:
                chunk.append(row)
                size += len(row.message.body)
        return chunk

    async def _try(self, chunk: list[RowMessage]) -> tuple[list[RowMessage], list[_Failure]]:
        """Sends each row at most once; returns those that nobody acknowledged, and why."""
        runs: dict[str, list[int]] = {}
        for number, row in enumerate(chunk):
            runs.setdefault(row.queue_key or f"\0{number}", []).append(number)
        stored: set[int] = set()
        errors: list[_Failure] = []

        async def send_run(numbers: list[int]) -> None:
            """Of one key, one after the other, up to the first that fails."""
            for number in numbers:
                row = chunk[number]
                try:
                    await self._producer.send(row.message, ordering_key=row.queue_key)
                except ClientError as error:
                    errors.append(_Failure(self._id_of(row), error))
                    return
                stored.add(number)

        self._is_in_doubt = True
        await asyncio.gather(*map(send_run, runs.values()))
        failed = [row for number, row in enumerate(chunk) if number not in stored]
        self._is_in_doubt = bool(failed)
        return failed, errors

    async def _look_for_failed(self, errors: list[_Failure]) -> None:
        """Finds out what is stored, after which rows may be sent again.

        Raises:
            RowError, ClusterError: no other try would change it, or the time is over.
        """
        for row_id, error in errors:
            if isinstance(error, MessageError):
                raise RowError(row_id, str(error)) from error
            if not error.retriable:
                raise ClusterError(f"row {row_id}", str(error)) from error
        row_id, error = errors[0]
        self._patience.wait(f"row {row_id}", error)
        await asyncio.sleep(self._settle_s)
        self._stored.look()
        self._is_in_doubt = False

    def _id_of(self, row: RowMessage) -> str:
        return row.message.properties[self._options.row_id_property]

    async def _pace(self) -> None:
        if self._options.rows_per_second:
            due_s = self._started_s + self._sent / self._options.rows_per_second
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))


def producer_config(options: WriteOptions) -> ProducerConfig:
    """Returns the settings of the producer of a write that stores each row once."""
    settings: dict[str, Any] = {"timeout_s": _SEND_S, "attempt_timeout_s": _SEND_S}
    return ProducerConfig(client=options.access.client_config(), written_once=True, **settings)
