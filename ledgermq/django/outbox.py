"""Adding to the outbox, and sending what is in it.

    with transaction.atomic():
        order.save()
        outbox.add(Message("orders", b"..."), ordering_key=order.customer)

Settings (all optional), in settings.py:

    LEDGERMQ = {"name_servers": "127.0.0.1:9876", "group": "shop", "config": ProducerConfig(...)}

Order: a message with an ordering key is not sent before those of the same key that still wait; it
is left to `send_waiting`, which sends them one after the other. Memory is bounded by BATCH_BYTES.
A message that cannot be sent holds up no others: those of its key alone, and those of its topic
while nobody takes messages of that.
"""

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.models import QuerySet
from django.utils import timezone

from ledgermq.client import ClientError, ConfigError, Message, MessageError, ProducerConfig
from ledgermq.client.blocking import Producer
from ledgermq.client.checks import check_topic
from ledgermq.client.messages import SendResult
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.send_frame import properties_text, single_body
from ledgermq.django.models import OutboxMessage

# The property by which consumers know a message that was sent twice.
OUTBOX_ID: Final = "OUTBOX_ID"
# Rows that are read and sent together, and their bodies: with the one that reaches the bound.
BATCH: Final = 500
BATCH_BYTES: Final = 32 * 2**20
# Rows that a database gives at a time, of 4 MiB each at most.
_CHUNK: Final = 16
# After a commit a request waits no longer than this for its messages; the rest is left to
# `send_waiting`.
_AFTER_COMMIT_S: Final = 3.0
_SETTINGS: Final = {"name_servers", "group", "config"}
# As long as the one that a message gets when it is sent.
_ANY_ID: Final = "0" * 32

_log = logging.getLogger("ledgermq.django")


def _words() -> dict[str, Any]:
    """Returns the settings, with a producer's config in any case.

    Raises:
        ConfigError: there is one that nobody knows.
    """
    given = getattr(settings, "LEDGERMQ", {})
    if unknown := sorted(set(given) - _SETTINGS):
        allowed = ", ".join(sorted(_SETTINGS))
        raise ConfigError(f"LEDGERMQ has {', '.join(unknown)}; allowed: {allowed}")
    return {"config": ProducerConfig(timeout_s=_AFTER_COMMIT_S), **given}


class _Senders:
    """The producer of this process, made at its first send, and anew in the child of a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = 0
        self._producer: Producer | None = None

    def producer(self) -> Producer:
        """Returns it, open.

        Raises:
            ConfigError: the settings are wrong.
        """
        if self._process_id != os.getpid():
            # Another process's lock may have been held when it forked.
            self._lock, self._producer, self._process_id = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._producer is None:
                words = _words()
                producer = Producer(
                    words.get("name_servers", "127.0.0.1:9876"),
                    words.get("group", "django"),
                    config=words["config"],
                )
                producer.__enter__()
                self._producer = producer
            return self._producer

    def close(self) -> None:
        """Closes it; the next send makes another. Safe to call twice."""
        producer, self._producer = self._producer, None
        if producer is not None and self._process_id == os.getpid():
            producer.close()


_senders = _Senders()
atexit.register(_senders.close)


def close() -> None:
    """Closes the producer of this process; done by itself when the process ends."""
    _senders.close()


def add(*messages: Message, ordering_key: str = "", using: str = DEFAULT_DB_ALIAS) -> None:
    """Writes messages into the outbox; they are sent when the transaction is committed.

    A transaction that is rolled back takes them along, a savepoint as well. Outside of a
    transaction they are committed, and sent, at once. A failure to send is logged and raises
    nothing: the row is there, and `send_waiting` sends it.

    Args:
        messages: with bytes as body.
        ordering_key: of all of them: one queue, one after the other.
        using: the database of the transaction.

    Raises:
        MessageError: a value is not allowed, a body is no bytes, or too large; the transaction may
            go on.
        ConfigError: a topic can have no such name, or the settings are wrong.
    """
    config = _words()["config"]
    for message in messages:
        if not isinstance(message.body, bytes):
            kind = type(message.body).__name__
            raise MessageError(f"body is {kind}; allowed: bytes", topic=message.topic)
    rows = [_row(message, ordering_key) for message in messages]
    for row in rows:
        _check(_message(row), config)
    with transaction.atomic(using=using):
        for row in rows:
            row.save(using=using, force_insert=True)
        transaction.on_commit(lambda: _after_commit(rows, using), using=using)


def _check(message: Message, config: ProducerConfig) -> None:
    """Refuses what the producer would refuse: a row that cannot be sent would stay for ever.

    Raises:
        MessageError, ConfigError: as `add`.
    """
    check_topic(message.topic)
    namespace = config.client.namespace
    check_topic(with_namespace(namespace, message.topic))
    text = properties_text(message, _ANY_ID, namespace, config.delay_level_max)
    single_body(message, text, 0, 0, config.body_bytes_max)


def _after_commit(rows: Sequence[OutboxMessage], using: str) -> None:
    """Sends what has just been committed, unless something of its key waits before it."""
    try:
        first = rows[0] if rows else None
        if first is not None and first.ordering_key:
            before = OutboxMessage.objects.using(using).filter(ordering_key=first.ordering_key)
            if before.filter(pk__lt=first.pk).exists():
                return
        held = _Held()
        _send(rows, using, held)
        error: Exception | None = held.error
    # Whatever it is, the transaction is committed, and the caller's work is done.
    except Exception as other:
        error = other
    if error is not None:
        _log.warning("the outbox keeps messages for manage.py send_outbox: %s", error)


def send_waiting(*, older_than_s: float = 10.0, using: str = DEFAULT_DB_ALIAS) -> int:
    """Sends what waits, in the order in which it was added.

    One at a time is enough, and keeps the order by key. Where the database can lock rows and skip
    those that are locked (PostgreSQL, MySQL 8, Oracle), several share the work, without that order.

    Args:
        older_than_s: leaves younger rows to the processes that have just committed them. More than
            a send may take (`ProducerConfig.timeout_s`), or messages are sent twice now and then.
        using: the database.

    Returns:
        How many messages were sent.

    Raises:
        ClientError: of the first message that was not acknowledged, when all others were tried. It
            waits on, as do those of its key behind it, and where a later try may help those of its
            topic.
    """
    count, last_pk, held = 0, 0, _Held()
    until = timezone.now() - timedelta(seconds=older_than_s)
    while True:
        with transaction.atomic(using=using):
            # Those that stay are not looked at twice, however many they are.
            waiting = (
                OutboxMessage.objects.using(using)
                .filter(created__lte=until, pk__gt=last_pk)
                .order_by("pk")
            )
            if transaction.get_connection(using).features.has_select_for_update_skip_locked:
                waiting = waiting.select_for_update(skip_locked=True)
            rows = _batch(waiting[:BATCH])
            count += _send(rows, using, held)
        if not rows:
            break
        last_pk = rows[-1].pk
    if held.error is not None:
        _log.warning(
            "%d messages of the outbox wait on, the first is row %s", held.count, held.first_pk
        )
        raise held.error
    return count


def _batch(waiting: QuerySet[OutboxMessage]) -> list[OutboxMessage]:
    """Reads rows until their bodies have BATCH_BYTES."""
    rows: list[OutboxMessage] = []
    size_bytes = 0
    for row in waiting.iterator(chunk_size=_CHUNK):
        rows.append(row)
        size_bytes += len(row.body)
        if size_bytes >= BATCH_BYTES:
            break
    return rows


class _Held:
    """What waits behind rows that were not sent."""

    def __init__(self) -> None:
        self.count = 0
        # Of the first row that failed, in the order in which rows were added.
        self.error: ClientError | None = None
        self.first_pk = 0
        self._topics: set[str] = set()
        self._keys: set[str] = set()

    def holds(self, row: OutboxMessage) -> bool:
        """Tells whether a row has to wait; those of its key wait with it."""
        is_held = row.topic in self._topics or row.ordering_key in self._keys
        if is_held:
            self._add(row)
        return is_held

    def failed(self, row: OutboxMessage, error: ClientError) -> None:
        """Notes a row that was not acknowledged."""
        if self.error is None or row.pk < self.first_pk:
            self.error, self.first_pk = error, row.pk
        if error.retriable:
            # The next of its topic would wait as long as a send may take, too.
            self._topics.add(row.topic)
        self._add(row)

    def _add(self, row: OutboxMessage) -> None:
        self.count += 1
        if row.ordering_key:
            self._keys.add(row.ordering_key)


def _send(rows: Sequence[OutboxMessage], using: str, held: _Held) -> int:
    """Sends rows and deletes those that are acknowledged; returns how many.

    Those with an ordering key go one after the other, and none behind one that failed.
    """
    producer = _senders.producer()
    sent: list[Any] = []
    on_their_way: list[tuple[OutboxMessage, Future[SendResult]]] = []
    for row in rows:
        if held.holds(row):
            continue
        try:
            if row.ordering_key:
                producer.send(_message(row), ordering_key=row.ordering_key)
                sent.append(row.pk)
            else:
                on_their_way.append((row, producer.submit(_message(row))))
        except ClientError as error:
            held.failed(row, error)
    for row, future in on_their_way:
        try:
            future.result()
            sent.append(row.pk)
        except ClientError as error:
            held.failed(row, error)
    OutboxMessage.objects.using(using).filter(pk__in=sent).delete()
    return len(sent)


def _row(message: Message, ordering_key: str) -> OutboxMessage:
    return OutboxMessage(
        topic=message.topic,
        body=message.body,
        keys=message.keys,
        tags=message.tags,
        properties=dict(message.properties),
        flag=message.flag,
        delay_level=message.delay_level,
        ordering_key=ordering_key,
    )


def _message(row: OutboxMessage) -> Message:
    return Message(
        row.topic,
        bytes(row.body),
        keys=row.keys,
        tags=row.tags,
        properties={**row.properties, OUTBOX_ID: row.outbox_id.hex},
        flag=row.flag,
        delay_level=row.delay_level,
    )
