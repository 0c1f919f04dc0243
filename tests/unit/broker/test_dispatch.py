"""Dispatch and leadership: who is asked, who may write."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from ledgermq.broker.dispatch import ERROR_CODES, Answer, Dispatcher, born_host, code_of
from ledgermq.broker.leadership import Leadership
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.state import errors
from tests.unit.broker.parts import ListConnection

FIELDS = {"MSG_REGION": "R", "TRACE_ON": "true"}


class NarrowConnection(ListConnection):
    """Has no room for one remark."""

    def send(self, command: RemotingCommand) -> None:
        if command.remark == "long":
            raise LocalProtocolError("remark", "long", "shorter")
        super().send(command)


class Receiver:
    """A dispatcher with one processor for each of some codes."""

    def __init__(self) -> None:
        self.lost: list[Any] = []
        self.dispatcher = Dispatcher(send_fields=FIELDS, on_connection_lost=self.lost.append)
        self.later: Deferred[Any] = Deferred()
        self.connection = ListConnection()
        self.dispatcher.install(
            {1: self.echo, 10: self.echo, 2: self.refuse, 3: self.fail, 4: self.wait, 5: self.keep}
        )

    def echo(self, connection: Any, command: RemotingCommand) -> Answer:
        return command.response(0, body=command.body)

    def refuse(self, connection: Any, command: RemotingCommand) -> Answer:
        raise errors.TopicNotFoundError("no such topic")

    def fail(self, connection: Any, command: RemotingCommand) -> Answer:
        raise KeyError("a bug")

    def wait(self, connection: Any, command: RemotingCommand) -> Answer:
        return self.later

    def keep(self, connection: Any, command: RemotingCommand) -> Answer:
        return None

    def ask(self, *codes: int, flag: int = 0, serialize_type: int = 0) -> list[RemotingCommand]:
        commands = [
            RemotingCommand(code=code, opaque=number, flag=flag, serialize_type=serialize_type)
            for number, code in enumerate(codes)
        ]
        self.dispatcher.commands_received(self.connection, commands)  # type: ignore[arg-type]
        return self.connection.take()


def test_an_answer_that_cannot_be_sent_is_an_error_that_can() -> None:
    """What a consumer says may be too long for the header of who asked it."""
    receiver = Receiver()
    receiver.connection = NarrowConnection()
    answers = receiver.ask(1, 4, 1)
    receiver.later.callback(RemotingCommand(code=0, remark="long"))
    answers += receiver.connection.take()
    assert [answer.code for answer in answers] == [0, 0, 1]
    assert "cannot be sent" in str(answers[-1].remark)


def test_each_request_of_a_chunk_is_answered_whatever_happens_to_the_others() -> None:
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    try:
        answers = Receiver().ask(1, 2, 3, 999, 5, 1)
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert [(answer.opaque, answer.code) for answer in answers] == [
        (0, 0),
        (1, 17),
        (2, 1),
        (3, 3),
        (5, 0),
    ]
    assert answers[2].remark == "KeyError: 'a bug'"
    assert sum("log_failure" in event for event in events) == 1


def test_one_way_requests_are_never_answered() -> None:
    assert Receiver().ask(1, 2, 999, flag=2) == []


def test_answer_has_the_form_of_its_request() -> None:
    [answer] = Receiver().ask(1, serialize_type=1)
    assert answer.serialize_type == 1


def test_every_answer_to_a_send_has_the_fields_that_java_reads() -> None:
    [answer] = Receiver().ask(10)
    assert answer.ext_fields == FIELDS


def test_answer_may_come_later() -> None:
    receiver = Receiver()
    assert receiver.ask(4) == []
    receiver.later.errback(errors.SystemBusyError("busy"))
    assert [answer.code for answer in receiver.connection.commands] == [2]


def test_long_remarks_are_cut() -> None:
    receiver = Receiver()
    error = errors.InvalidRequestError("x" * 5000)
    receiver.dispatcher.refuse(receiver.connection, 7, 0, error)
    [answer] = receiver.connection.commands
    assert len(str(answer.remark)) == 1024


def test_each_error_class_has_its_own_code() -> None:
    assert code_of(RemoteProtocolError("field", 1)) == 1
    assert code_of(ValueError()) == 1
    for error_class, code in ERROR_CODES:
        if error_class not in (errors.BrokerError,) and issubclass(error_class, errors.BrokerError):
            assert code_of(error_class("x")) == code


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.9", b"\x0a\x00\x00\x09"),
        ("::ffff:10.0.0.9", b"\x0a\x00\x00\x09"),
        ("::1", bytes(15) + b"\x01"),
        ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\x01"),
        ("", b"\x7f\x00\x00\x01"),
    ],
)
def test_client_addresses_become_four_or_sixteen_bytes(host: str, address: bytes) -> None:
    assert born_host(host, 5) == (address, 5)


# Leadership.


def test_broker_id_follows_role_and_readiness() -> None:
    leadership = Leadership("n1", 2)
    assert (leadership.broker_id, leadership.is_serving) == (-1, False)
    leadership.changed("FOLLOWER", 3, "n0")
    assert leadership.broker_id == 2
    assert "n0 leads" in str(leadership.refusal())
    leadership.serve()
    assert not leadership.is_serving
    leadership.changed("LEADER", 4, "n1")
    assert leadership.broker_id == 2
    assert "not ready" in str(leadership.refusal())
    leadership.serve()
    assert (leadership.broker_id, leadership.is_serving) == (0, True)
    leadership.check_serving()
    leadership.changed("CANDIDATE", 5, None)
    assert leadership.broker_id == 2
    assert "knows no leader" in str(leadership.refusal())


def test_full_disk_closes_for_messages_only() -> None:
    leadership = Leadership("n0", 1)
    leadership.changed("LEADER", 1, "n0")
    leadership.serve()
    leadership.closed_because = "the disk is full, 95 % are used"
    assert leadership.is_serving and not leadership.takes_messages
    assert "95 %" in str(leadership.refusal())


def test_stopping_and_failed_brokers_never_serve_again() -> None:
    for end in (Leadership.stop, lambda leadership: leadership.fail("disk")):
        leadership = Leadership("n0", 1)
        leadership.changed("LEADER", 1, "n0")
        end(leadership)
        leadership.serve()
        assert not leadership.is_serving and not leadership.takes_messages
        with pytest.raises(errors.ServiceUnavailableError):
            leadership.check_serving()


def test_role_of_a_broker_whose_ledger_stopped_says_so() -> None:
    leadership = Leadership("n0", 1)
    leadership.changed("CANDIDATE", 7, None)
    leadership.fail("OSError: [Errno 5] Input/output error")
    assert (leadership.role, leadership.is_leader, leadership.broker_id) == ("FAILED", False, 1)
    assert "Input/output error" in str(leadership.refusal())


def test_a_chunk_ends_with_its_connection() -> None:
    """Thousands of lists were made for a client that had been closed for not reading them."""
    receiver = Receiver()
    asked: list[int] = []

    def list_all(connection: Any, command: RemotingCommand) -> Answer:
        asked.append(command.opaque)
        if len(asked) == 3:
            # As when too many bytes wait for the client.
            connection.close("it does not read")
        return command.response(0)

    receiver.dispatcher.install({21: list_all})
    receiver.ask(*[21] * 1000)
    assert asked == [0, 1, 2]
