"""Adding to the outbox, and sending what is in it.

    with transaction.atomic():
        order.save()
        outbox.add(Message("orders", b"..."), ordering_key=order.customer)

Settings (all optional), in settings.py:

    LEDGERMQ = {"name_servers": "127.0.0.1:9876", "group": "shop", "config": ProducerConfig(...)}

Order: a message with an ordering key is not sent before those of the same key that still wait; it
is left to `send_waiting`, which sends them one after the other. Memory is bounded by BATCH rows.
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
from django.utils import timezone

from ledgermq.client import ClientError, ConfigError, Message, MessageError, ProducerConfig
from ledgermq.client.blocking import Producer
from ledgermq.client.checks import DELAY_LEVEL_MAX, check_topic, check_values
from ledgermq.client.messages import SendResult
from ledgermq.django.models import OutboxMessage

# The property by which consumers know a message that was sent twice.
OUTBOX_ID: Final = "OUTBOX_ID"
# Rows that are read and sent together.
BATCH: Final = 500
# After a commit a request waits no longer than this for its messages; the rest is left to
# `send_waiting`.
_AFTER_COMMIT_S: Final = 3.0
_SETTINGS: Final = {"name_servers", "group", "config"}

_log = logging.getLogger("ledgermq.django")


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
                given = getattr(settings, "LEDGERMQ", {})
                if unknown := sorted(set(given) - _SETTINGS):
                    allowed = ", ".join(sorted(_SETTINGS))
                    raise ConfigError(f"LEDGERMQ has {', '.join(unknown)}; allowed: {allowed}")
                words = {"config": ProducerConfig(timeout_s=_AFTER_COMMIT_S), **given}
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
        MessageError: a value is not allowed, or a body is no bytes; the transaction may go on.
    """
    for message in messages:
        if not isinstance(message.body, bytes):
            kind = type(message.body).__name__
            raise MessageError(f"body is {kind}; allowed: bytes", topic=message.topic)
        check_topic(message.topic)
        check_values(message, DELAY_LEVEL_MAX)
    with transaction.atomic(using=using):
        rows = [_row(message, ordering_key) for message in messages]
        for row in rows:
            row.save(using=using, force_insert=True)
        transaction.on_commit(lambda: _after_commit(rows, using), using=using)


def _after_commit(rows: Sequence[OutboxMessage], using: str) -> None:
    """Sends what has just been committed, unless something of its key waits before it."""
    try:
        first = rows[0] if rows else None
        if first is not None and first.ordering_key:
            before = OutboxMessage.objects.using(using).filter(ordering_key=first.ordering_key)
            if before.filter(pk__lt=first.pk).exists():
                return
        error: Exception | None = _send(rows, using)
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
        ClientError: of the first message that was not acknowledged; it waits on, as do those
            behind it.
    """
    count = 0
    until = timezone.now() - timedelta(seconds=older_than_s)
    while True:
        with transaction.atomic(using=using):
            waiting = OutboxMessage.objects.using(using).filter(created__lte=until).order_by("pk")
            if transaction.get_connection(using).features.has_select_for_update_skip_locked:
                waiting = waiting.select_for_update(skip_locked=True)
            rows = list(waiting[:BATCH])
            error = _send(rows, using)
        count += len(rows)
        if error is not None:
            raise error
        if len(rows) < BATCH:
            return count


def _send(rows: Sequence[OutboxMessage], using: str) -> ClientError | None:
    """Sends rows and deletes those that are acknowledged; returns the first failure.

    Those with an ordering key go one after the other, and none behind one that failed.
    """
    producer = _senders.producer()
    sent: list[Any] = []
    on_their_way: list[tuple[OutboxMessage, Future[SendResult]]] = []
    failed: ClientError | None = None
    for row in rows:
        try:
            if row.ordering_key:
                producer.send(_message(row), ordering_key=row.ordering_key)
                sent.append(row.pk)
            else:
                on_their_way.append((row, producer.submit(_message(row))))
        except ClientError as error:
            failed = error
            break
    for row, future in on_their_way:
        try:
            future.result()
            sent.append(row.pk)
        except ClientError as error:
            failed = failed or error
    OutboxMessage.objects.using(using).filter(pk__in=sent).delete()
    return failed


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
