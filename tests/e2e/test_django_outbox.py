"""Django's outbox: what is committed is sent, what is rolled back is not, whatever dies between."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import Future
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections, transaction

import ledgermq
from ledgermq.client import ClientError, Message, MessageError, ProducerConfig, UnreachableError
from tests.e2e.django_site import set_up
from tests.free_ports import free_ports
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "DjangoOutbox"


class Site:
    """The site of these tests; Django allows one for each process."""

    def __init__(self, database: Path, name_server: str) -> None:
        self.database = database
        self.name_server = name_server
        self.outbox = set_up(str(database), name_server)

    def bodies(self) -> list[str]:
        """What the topic holds now, and the ids under which it was sent."""
        table = ledgermq.read(TOPIC, name_servers=self.name_server).read_all()
        self.ids = [dict(row)["OUTBOX_ID"] for row in table.column("properties").to_pylist()]
        return [body.decode() for body in table.column("body").to_pylist()]

    def waiting(self) -> int:
        """How many rows wait."""
        return int(self.outbox.OutboxMessage.objects.count())

    def holds(self, *bodies: str) -> bool:
        try:
            return set(bodies) <= set(self.bodies())
        except ClientError:
            return False


@pytest.fixture(scope="module")
def site(name_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site") / "db.sqlite3", name_server)
    yield made
    made.outbox.close()
    connections.close_all()


def test_committed_is_sent_and_rolled_back_is_not(site: Site) -> None:
    with transaction.atomic():
        site.outbox.add(Message(TOPIC, b"committed", keys="k", tags="t", properties={"a": "b"}))
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            site.outbox.add(Message(TOPIC, b"of a savepoint"))
            _ = 1 / 0
        assert site.waiting() == 1
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        site.outbox.add(Message(TOPIC, b"rolled back"))
        _ = 1 / 0
    site.outbox.add(Message(TOPIC, b"first"), Message(TOPIC, b"second"), ordering_key="one")
    wait_until(lambda: site.holds("committed", "first", "second"), what="messages", deadline_s=60)
    assert sorted(site.bodies()) == ["committed", "first", "second"]
    assert site.waiting() == 0 and len(set(site.ids)) == 3
    table = ledgermq.read(TOPIC, name_servers=site.name_server).read_all().to_pylist()
    [row] = [row for row in table if row["body"] == b"committed"]
    assert (row["keys"], row["tags"], dict(row["properties"])["a"]) == ("k", "t", "b")
    ordered = [row for row in table if row["body"] != b"committed"]
    assert ordered[0]["queue_id"] == ordered[1]["queue_id"]
    assert [row["body"] for row in ordered] == [b"first", b"second"]


def test_process_that_is_killed_after_its_commit_loses_nothing(site: Site) -> None:
    words = [str(site.database), site.name_server, TOPIC, "of the dead"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.django_site", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert site.waiting() == 1 and not site.holds("of the dead")
    call_command("send_outbox", stdout=StringIO())
    assert site.waiting() == 1, "young rows are left to those who have just committed them"
    out = StringIO()
    call_command("send_outbox", older_than=0.0, stdout=out)
    assert out.getvalue() == "1 messages sent\n" and site.waiting() == 0
    assert site.holds("of the dead")


def test_brokers_that_are_away_fail_no_request_and_later_messages_keep_their_order(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    [port] = free_ports(1)
    config = ProducerConfig(timeout_s=0.3)
    away: dict[str, Any] = {"name_servers": f"127.0.0.1:{port}", "config": config}
    there, settings.LEDGERMQ = settings.LEDGERMQ, away
    site.outbox.close()
    try:
        site.outbox.add(Message(TOPIC, b"away 0"), ordering_key="two")
        assert "the outbox keeps messages" in caplog.text
        with pytest.raises(CommandError):
            call_command("send_outbox", older_than=0.0)
    finally:
        settings.LEDGERMQ = there
        site.outbox.close()
    # The one before it waits, so it does, too.
    site.outbox.add(Message(TOPIC, b"away 1"), ordering_key="two")
    assert site.waiting() == 2
    assert site.outbox.send_waiting(older_than_s=0.0) == 2
    found = [body for body in site.bodies() if body.startswith("away")]
    assert found == ["away 0", "away 1"] and site.waiting() == 0


def test_wrong_values_are_refused_before_anything_is_written(site: Site) -> None:
    with transaction.atomic():
        with pytest.raises(MessageError, match="body is str; allowed: bytes"):
            site.outbox.add(Message(TOPIC, "text"))
        with pytest.raises(ClientError, match="bad name!"):
            site.outbox.add(Message("bad name!", b"x"))
        assert site.waiting() == 0


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message(TOPIC, b"x" * (4 * 2**20 + 1)), "4194305 bytes; allowed: 4194304"),
        (Message(TOPIC, b"x", properties={"a": "b" * 2**15}), "properties of [0-9]+ bytes"),
        (Message(TOPIC, b"x", keys="a\x02b"), "x02"),
        (Message(TOPIC, b"x", properties={"KEYS": "k"}), "KEYS"),
        (Message(TOPIC, b"x", properties={"a": "\ud800"}), "UTF-8"),
    ],
)
def test_what_no_broker_would_take_is_refused_before_anything_is_written(
    site: Site, message: Message, said: str
) -> None:
    with transaction.atomic():
        with pytest.raises(MessageError, match=said):
            site.outbox.add(Message(TOPIC, b"beside it"), message, ordering_key="k")
        assert site.waiting() == 0


def test_row_that_cannot_be_sent_holds_up_those_of_its_key_alone(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may have been written with other limits, or when the broker had other ones."""
    monkeypatch.setattr(site.outbox, "BATCH", 2)
    large = b"x" * (5 * 2**20)
    rows = [
        *((TOPIC, large, ""),) * 3,
        (TOPIC, large, "bad"),
        (TOPIC, b"behind a bad one", "bad"),
        (TOPIC, b"of another key", "good"),
        (TOPIC, b"of no key", ""),
    ]
    for topic, body, key in rows:
        site.outbox._row(Message(topic, body), key).save()
    try:
        for _ in range(2):
            with pytest.raises(MessageError, match="allowed: 4194304"):
                site.outbox.send_waiting(older_than_s=0.0)
            assert site.waiting() == 5
        assert "5 messages of the outbox wait on, the first is row" in caplog.text
        assert site.holds("of another key", "of no key")
        assert not site.holds("behind a bad one")
    finally:
        site.outbox.OutboxMessage.objects.all().delete()


class Away:
    """A producer; to one topic nobody takes messages."""

    def __init__(self) -> None:
        self.tried: list[bytes] = []

    def send(self, message: Message, *, ordering_key: str) -> None:
        self.tried.append(message.body)
        if message.topic == "Away":
            raise UnreachableError("away", retriable=True)

    def submit(self, message: Message) -> Future[None]:
        future: Future[None] = Future()
        try:
            future.set_result(self.send(message, ordering_key=""))
        except ClientError as error:
            future.set_exception(error)
        return future


def test_topic_that_nobody_takes_messages_of_is_asked_once_and_holds_up_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message of it would wait as long as a send may take."""
    producer = Away()
    monkeypatch.setattr(site.outbox, "BATCH", 2)
    monkeypatch.setattr(site.outbox._senders, "producer", lambda: producer)
    rows = [
        ("Away", b"1", "a"),
        ("Away", b"2", "b"),
        ("There", b"3", "b"),
        ("Away", b"4", ""),
        ("There", b"5", "c"),
        ("There", b"6", ""),
    ]
    for topic, body, key in rows:
        site.outbox._row(Message(topic, body), key).save()
    try:
        with pytest.raises(UnreachableError):
            site.outbox.send_waiting(older_than_s=0.0)
        # The third waits for the one before it that has its key.
        assert producer.tried == [b"1", b"5", b"6"]
        assert site.waiting() == 4
    finally:
        site.outbox.OutboxMessage.objects.all().delete()


def test_bytes_of_what_is_read_at_a_time_are_bounded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While brokers are away rows of 4 MiB may gather; 500 of them would end the process."""
    read: list[list[int]] = []
    send = site.outbox._send

    def noted(rows: Any, *others: Any) -> int:
        read.append([len(row.body) for row in rows])
        return int(send(rows, *others))

    monkeypatch.setattr(site.outbox, "BATCH_BYTES", 2000)
    monkeypatch.setattr(site.outbox, "_send", noted)
    for size in (900, 1000, 900, 5000, 10, 20):
        site.outbox._row(Message(TOPIC, b"x" * size), "").save()
    assert site.outbox.send_waiting(older_than_s=0.0) == 6 and site.waiting() == 0
    # The one that reaches the bound is the last.
    assert [sizes for sizes in read if sizes] == [[900, 1000, 900], [5000], [10, 20]]


def test_snippets_of_the_client_page_do_what_it_says(site: Site) -> None:
    page = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    section = page.split("## An outbox for Django\n")[1].split("\n## ")[0]
    # Lines that are indented, and what is between them.
    blocks = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", section, re.MULTILINE)
    use, configure = [textwrap.dedent(block) for block in blocks]
    given = {"ProducerConfig": ProducerConfig}
    exec(configure, given)
    there, wanted = settings.LEDGERMQ, dict(given["LEDGERMQ"])  # type: ignore[call-overload]
    settings.LEDGERMQ = {**wanted, "name_servers": site.name_server}
    site.outbox.close()
    saved: list[str] = []
    order = SimpleNamespace(customer_id=7, save=lambda: saved.append("order"))
    try:
        exec(use, {"transaction": transaction, "order": order})
    finally:
        settings.LEDGERMQ = there
        site.outbox.close()
    assert saved == ["order"] and site.waiting() == 0
    table = ledgermq.read("orders", name_servers=site.name_server).read_all()
    assert b"..." in table.column("body").to_pylist()
