"""What the broker keeps of those who have clients asked is bounded, and given back."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from ledgermq.broker.clients import open_questions
from ledgermq.broker.clients.open_questions import OpenQuestions
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import InvalidRequestError, SystemBusyError
from tests.unit.protocol.wires import Recorder

_MIB = 1 << 20
_TIMEOUT_MS = 10_000


class Bench:
    def __init__(self) -> None:
        self.clock: Any = Clock()
        self.questions = OpenQuestions()
        self.open: list[Deferred[RemotingCommand]] = []

    def connect(self, account: str = "shop") -> CommandProtocol:
        connection = CommandProtocol(self.clock, Recorder())
        connection.makeConnection(StringTransport())
        connection.account = account
        return connection

    def ask(self, asker: CommandProtocol, client: CommandProtocol, size: int = _MIB) -> None:
        command = RemotingCommand(code=324, ext_fields={"a": "b"}, body=bytes(size))
        question = RemotingCommand(code=int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT))
        answered = self.questions.ask(asker, command, client, question, _TIMEOUT_MS)
        answered.addErrback(lambda _: None)

    def fill(self, asker: CommandProtocol, client: CommandProtocol) -> int:
        """Asks until it is refused; returns how often."""
        for count in range(1000):
            try:
                self.ask(asker, client)
            except (SystemBusyError, InvalidRequestError):
                return count
        raise AssertionError("nothing bounds it")


def test_a_client_that_answers_nothing_is_asked_no_more() -> None:
    bench = Bench()
    asker, silent, other = bench.connect(), bench.connect(), bench.connect()
    assert bench.fill(asker, silent) == 15
    with pytest.raises(InvalidRequestError, match="allowed are 16777216: it answers too slowly"):
        bench.ask(asker, silent)
    bench.ask(asker, other)


def test_who_has_many_clients_asked_is_bounded_and_nobody_else() -> None:
    bench = Bench()
    asker = bench.connect()
    assert sum(bench.fill(asker, bench.connect()) for _ in range(20)) == 47
    with pytest.raises(SystemBusyError, match="bytes of shop wait .* allowed are 50331648"):
        bench.ask(bench.connect(), bench.connect())
    bench.ask(bench.connect("pay"), bench.connect())


def test_all_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_questions, "ALL_BYTES_MAX", 4 * _MIB)
    bench = Bench()
    for number in range(3):
        bench.ask(bench.connect(f"a{number}"), bench.connect())
    with pytest.raises(SystemBusyError, match="allowed are 4194304"):
        bench.ask(bench.connect("a9"), bench.connect())
    assert bench.questions.held_bytes < 4 * _MIB


def test_small_questions_count_with_what_they_are_made_of() -> None:
    bench = Bench()
    asker, silent = bench.connect(), bench.connect()
    with pytest.raises(InvalidRequestError):
        for _ in range(20_000):
            bench.ask(asker, silent, size=0)


def test_one_alone_may_be_of_any_size() -> None:
    bench = Bench()
    bench.ask(bench.connect(), bench.connect(), size=200 * _MIB)


@pytest.mark.parametrize("end", ["their time", "the connection"])
def test_what_was_answered_or_given_up_counts_no_more(end: str) -> None:
    bench = Bench()
    asker, silent = bench.connect(), bench.connect()
    bench.fill(asker, silent)
    if end == "their time":
        bench.clock.advance(_TIMEOUT_MS / 1000 + 1)
    else:
        silent.connectionLost(Failure(ConnectionDone()))
    assert bench.questions.held_bytes == 0
    assert bench.fill(asker, bench.connect()) == 15
