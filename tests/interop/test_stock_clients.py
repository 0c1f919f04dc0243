"""Stock clients send to LedgerMQ and each consumes what all of them sent.

INTEROP_MESSAGES (10000) sets how many messages each client sends, INTEROP_SEED (2026) which ones,
INTEROP_CLIENTS (all) which clients take part, as names with commas between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.interop import corpus
from tests.interop.conftest import LedgerMQStarter, Tell
from tests.interop.corpus import QUEUE_COUNT, Expected
from tests.interop.judging import Consuming, Sending, Verdict, judge, table
from tests.interop.mqadmin import make_topic
from tests.interop.programs import (
    PROGRAMS,
    StockProgram,
    consume_command,
    run,
    send_command,
)
from tests.interop.stock_broker import JavaCluster

MESSAGE_COUNT = int(os.environ.get("INTEROP_MESSAGES", "10000"))
SEED = int(os.environ.get("INTEROP_SEED", "2026"))
CHOSEN = [
    program
    for program in PROGRAMS
    if program.name in os.environ.get("INTEROP_CLIENTS", program.name).split(",")
]
# Programs at a time: two cores, and brokers that need them too. A sender waits for disks mostly.
SENDERS_AT_A_TIME = 3
CONSUMERS_AT_A_TIME = 2
DEADLINE_SECONDS = 900.0


@dataclass(slots=True, kw_only=True)
class Round:
    """All chosen clients against one cluster: corpora, senders, consumers, verdicts."""

    # The name server of the cluster, stock or ours.
    namesrv: str
    topic: str
    workspace: Path
    message_count: int
    programs: Sequence[StockProgram]
    # Takes the table.
    tell: Tell = field(default=print)

    def play(self) -> list[Verdict]:
        """Send everything, then let each client consume everything."""
        make_topic(self.namesrv, self.topic, QUEUE_COUNT)
        corpora = {
            program.name: corpus.write(
                self._corpus_path(program), program.name, self.message_count, SEED
            )
            for program in self.programs
        }
        with ThreadPoolExecutor(SENDERS_AT_A_TIME) as pool:
            # Node's, the last one, sends one message after another: it begins first.
            sent = pool.map(self._send, reversed(self.programs))
            sendings = {one.client: one for one in sent}
        total = sum(len(sending.acknowledged) for sending in sendings.values())
        with ThreadPoolExecutor(CONSUMERS_AT_A_TIME) as pool:
            consumings = list(pool.map(self._consumer(corpora, total), self.programs))
        verdicts = [judge(consuming, sendings) for consuming in consumings]
        size = sum(one.size for expected in corpora.values() for one in expected.values())
        packages = {program.name: program.package for program in self.programs}
        self.tell(
            f"{self.topic}: {total} messages of {size / 1e6:.0f} MB in {QUEUE_COUNT} queues\n"
            + table(verdicts, packages, size / 1e6)
        )
        for verdict in verdicts:
            for problem in verdict.problems:
                print(f"  {verdict.client}: {problem}")
        for sending in sendings.values():
            for refusal in sending.refusals[:10]:
                print(f"  {sending.client} was refused {refusal}")
        return verdicts

    def _corpus_path(self, program: StockProgram) -> Path:
        return self.workspace / f"{self.topic}-{program.name}.corpus"

    def _send(self, program: StockProgram) -> Sending:
        sending = Sending(program.name)
        command = send_command(
            program, namesrv=self.namesrv, topic=self.topic,
            corpus=self._corpus_path(program), queues=QUEUE_COUNT,
        )  # fmt: skip
        outcome = run(
            command,
            sending.hear,
            log_path=self.workspace / f"{self.topic}-{program.name}-send.log",
            deadline_seconds=DEADLINE_SECONDS,
        )
        sending.seconds = outcome.done["seconds"]
        return sending

    def _consumer(
        self, corpora: dict[str, dict[int, Expected]], total: int
    ) -> Callable[[StockProgram], Consuming]:
        def consume(program: StockProgram) -> Consuming:
            consuming = Consuming(program.name, corpora, program.orderly)
            command = consume_command(
                program, namesrv=self.namesrv, topic=self.topic,
                expect=total,
            )  # fmt: skip
            outcome = run(
                command,
                consuming.hear,
                log_path=self.workspace / f"{self.topic}-{program.name}-consume.log",
                deadline_seconds=DEADLINE_SECONDS,
            )
            consuming.seconds = outcome.done["seconds"]
            return consuming

        return consume


def require_clean(verdicts: Sequence[Verdict], message_count: int, client_count: int) -> None:
    """Fail unless every client sent all of its messages and consumed all messages of all."""
    for verdict in verdicts:
        assert verdict.sent == message_count * client_count, verdict
        assert verdict.is_clean, verdict
        assert verdict.again == 0, f"{verdict.client} was given {verdict.again} messages again"


@pytest.fixture(scope="module")
def ledgermq(start_ledgermq: LedgerMQStarter) -> UpCluster:
    """A group of three LedgerMQ brokers with its name server."""
    return start_ledgermq()


@pytest.mark.timeout(600)
def test_the_programs_themselves_pass_against_the_stock_broker(
    java_cluster: JavaCluster, workspace: Path
) -> None:
    """The reference: what fails here is a fault of a program or a client, not of LedgerMQ."""
    count = min(300, MESSAGE_COUNT)
    programs = CHOSEN
    verdicts = Round(
        namesrv=java_cluster.namesrv, topic="InteropStock", workspace=workspace,
        message_count=count, programs=programs,
    ).play()  # fmt: skip
    require_clean(verdicts, count, len(programs))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", CHOSEN, ids=lambda program: program.name)
def test_a_waiting_push_consumer_is_given_messages_as_they_come(
    ledgermq: UpCluster, workspace: Path, program: StockProgram
) -> None:
    """The consumer subscribes to an empty topic first, so that each message ends a long poll."""
    count = min(200, MESSAGE_COUNT)
    topic = f"Live_{program.name.replace('.', '_')}"
    make_topic(ledgermq.name_server, topic, QUEUE_COUNT)
    one = Round(
        namesrv=ledgermq.name_server, topic=topic, workspace=workspace,
        message_count=count, programs=[program],
    )  # fmt: skip
    path = workspace / f"{topic}-{program.name}.corpus"
    corpora = {program.name: corpus.write(path, program.name, count, SEED)}
    with ThreadPoolExecutor(1) as pool:
        consuming = pool.submit(one._consumer(corpora, count), program)
        sending = one._send(program)
        verdict = judge(consuming.result(), {program.name: sending})
    require_clean([verdict], count, 1)


@pytest.mark.timeout(2400)
def test_each_client_consumes_what_all_clients_sent(
    ledgermq: UpCluster, workspace: Path, tell: Tell
) -> None:
    verdicts = Round(
        namesrv=ledgermq.name_server, topic="InteropAll", workspace=workspace,
        message_count=MESSAGE_COUNT, programs=CHOSEN, tell=tell,
    ).play()  # fmt: skip
    require_clean(verdicts, MESSAGE_COUNT, len(CHOSEN))
