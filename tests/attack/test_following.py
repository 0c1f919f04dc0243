"""Somebody registers as the master of a group whose secret he does not know: a follower takes no
tables from him and gives him no offsets, and he learns nothing by passing its questions on.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred, succeed

from ledgermq.broker.leader_trust import LeaderTrust
from ledgermq.broker.member_questions import CODES, MEMBER, MemberAnswers, MemberQuestions
from ledgermq.broker.offsets.relay import OffsetRelay
from ledgermq.broker.state_copy import StateCopy
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.headers import UpdateConsumerOffsetRequestHeader
from ledgermq.protocol.transport.refusals import Refusals
from ledgermq.state.errors import AccessDeniedError
from tests.e2e.plain_pair import NAME, PlainBroker
from tests.e2e.wire_client import WireClient
from tests.processes import name_server
from tests.unit.broker.guarded import GuardedTable, guarded_table
from tests.unit.broker.parts import ListConnection, Parts
from tests.waiting import wait_until

SECRET, OTHER_SECRET = GroupSecret(b"s" * 32), GroupSecret(b"o" * 32)
UPDATE_OFFSET: Final = RequestCode.UPDATE_CONSUMER_OFFSET
MASTER, IMPOSTOR = "10.0.0.1:10911", "10.6.6.6:10911"
POISON: Final = {
    RequestCode.GET_ALL_TOPIC_CONFIG: {
        "topicConfigTable": {"poison": {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}},
        "dataVersion": {"counter": 99, "timestamp": 1},
    },
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {
        "subscriptionGroupTable": {}, "dataVersion": {"counter": 99, "timestamp": 1},
    },
    RequestCode.GET_ALL_CONSUMER_OFFSET: {"offsetTable": {"poison@g": {0: 7}}},
    RequestCode.GET_ALL_DELAY_OFFSET: {"offsetTable": {}},
}  # fmt: skip
Ask = Callable[[RemotingCommand], RemotingCommand]


def poisoned(question: RemotingCommand) -> RemotingCommand:
    """What somebody else answers in the master's place."""
    told = POISON.get(RequestCode(question.code), {})
    return question.response(ResponseCode.SUCCESS, body=lenient_json.write(told))


class Peer:
    """Whoever is connected, and what was asked there."""

    def __init__(self, answer: Ask) -> None:
        self._answer = answer
        self.asked: list[RemotingCommand] = []

    def request(self, command: RemotingCommand, timeout_ms: int) -> Deferred[RemotingCommand]:
        self.asked.append(command)
        return succeed(self._answer(command))

    def stop(self) -> Deferred[None]:
        return succeed(None)


class Master:
    """The tables of a true master behind its guard; it can be asked like one of its clients."""

    def __init__(self, folder: Path, secret: GroupSecret = SECRET) -> None:
        rules = {"accounts": [{"accessKey": "root-app", "secretKey": "secret-1", "admin": True}]}
        self.guarded: GuardedTable = guarded_table(folder, rules)
        open_table = guarded_table(folder, {"globalWhiteRemoteAddresses": ["*"]}).table
        answers = MemberAnswers("broker-a", secret, MASTER, lambda: 1e12, lambda: 0.0)
        self.table = answers.around(open_table, self.guarded.table)

    def answer(self, question: RemotingCommand) -> RemotingCommand:
        connection: Any = ListConnection()
        try:
            answer: Any = self.table[question.code](connection, question)
        except AccessDeniedError as error:
            return question.response(ResponseCode.SYSTEM_ERROR, str(error))
        assert isinstance(answer, RemotingCommand)
        return answer


class Follower:
    """A member that follows n1, which name servers say is at some address."""

    def __init__(self, answer: Ask, address: str, *, is_java: bool = False, host: str = "") -> None:
        parts = Parts()
        parts.leadership.changed("FOLLOWER", 4, "n1")
        questions = MemberQuestions("broker-a", SECRET, is_required=True)
        self.refusals = Refusals("n0", lambda: 0.0)
        trust = LeaderTrust(questions, lambda _: is_java, lambda _, at: at == host, self.refusals)
        self.peer, self.state = Peer(answer), parts.state
        around: Any = {
            "find_master": lambda: address, "ask_for_master": lambda: None,
            "connect": lambda _: self.peer, "trust": trust,
        }  # fmt: skip
        self.copy = StateCopy(
            parts.leadership, parts.state, is_copied=lambda _: True, mirrors_tables=True, **around
        )
        offsets = parts.state
        self.relay = OffsetRelay(parts.leadership, offsets.offsets, offsets.commits.tell, **around)

    def run(self) -> None:
        for _ in range(3):
            self.copy.run()
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="g", topic="T", queue_id=0, commit_offset=5
        )
        self.relay.take(header, {**header.to_ext_fields(), "Signature": "of a client"}, "client")
        self.relay.run()

    @property
    def codes(self) -> set[int]:
        return {command.code for command in self.peer.asked}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10**18)


@pytest.mark.usefixtures("clock")
class TestFollower:
    def test_takes_tables_of_a_master_that_proves_the_secret(self, tmp_path: Path) -> None:
        follower = Follower(Master(tmp_path).answer, MASTER)
        follower.run()
        assert follower.copy.count == 2 and follower.refusals.texts() == []
        told = [one for one in follower.peer.asked if one.code == UPDATE_OFFSET]
        assert len(told) == 1 and told[0].ext_fields is not None
        assert told[0].ext_fields["AccessKey"] == MEMBER
        assert told[0].ext_fields["Signature"] != "of a client"

    @pytest.mark.parametrize("way", ["poison", "another secret", "passed on"])
    def test_takes_nothing_of_others_and_tells_them_nothing(self, tmp_path: Path, way: str) -> None:
        """Who passes its questions on to the true master gets no answer of it."""
        answer = {
            "poison": poisoned,
            "another secret": Master(tmp_path, OTHER_SECRET).answer,
            "passed on": Master(tmp_path).answer,
        }[way]
        follower = Follower(answer, MASTER if way == "another secret" else IMPOSTOR)
        follower.run()
        assert follower.copy.count == 0 and "poison" not in follower.state.topics
        assert UPDATE_OFFSET not in follower.codes
        assert "does not prove the group's secret" in follower.refusals.texts()[0]

    def test_believes_a_java_leader_at_its_own_address_alone(self) -> None:
        there = Follower(poisoned, MASTER, is_java=True, host="10.0.0.1")
        there.run()
        assert there.copy.count == 2
        elsewhere = Follower(poisoned, IMPOSTOR, is_java=True, host="10.0.0.1")
        elsewhere.run()
        assert elsewhere.copy.count == 0 and elsewhere.peer.asked == []


@pytest.mark.usefixtures("clock")
class TestMaster:
    def question(self, secret: GroupSecret = SECRET, address: str = MASTER) -> RemotingCommand:
        questions = MemberQuestions("broker-a", secret, is_required=True)
        return questions.ask(RequestCode.GET_ALL_TOPIC_CONFIG, address)

    def test_answers_each_question_of_a_member_once(self, tmp_path: Path) -> None:
        master, question = Master(tmp_path), self.question()
        assert master.answer(question).code == ResponseCode.SUCCESS
        again = master.answer(question)
        assert again.body == b"" and "it came before" in str(again.remark)

    def test_tells_nothing_to_who_signs_with_something_else(self, tmp_path: Path) -> None:
        master = Master(tmp_path)
        for question in (self.question(OTHER_SECRET), self.question(address=IMPOSTOR)):
            refused = master.answer(question)
            assert refused.code == ResponseCode.SYSTEM_ERROR and refused.body == b""
            assert "MemberProof" not in (refused.ext_fields or {})

    def test_opens_no_other_code_by_a_question(self, tmp_path: Path) -> None:
        master = Master(tmp_path)
        credentials = MemberQuestions("broker-a", SECRET, is_required=True)
        for code in master.table:
            if code in CODES:
                continue
            question = credentials.ask(RequestCode(code), MASTER)
            assert question.ext_fields is not None and question.ext_fields["AccessKey"] == MEMBER
            assert "No acl config for" in str(master.answer(question).remark)


class Impostor(socketserver.ThreadingTCPServer):
    """Listens somewhere, and answers as a master whose tables are poison."""

    daemon_threads = allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: list[int] = []


class _Answering(socketserver.BaseRequestHandler):
    server: Impostor

    def handle(self) -> None:
        decoder = FrameDecoder()
        while chunk := self.request.recv(65_536):
            for question in map(decode, decoder.feed(chunk)):
                self.server.asked.append(question.code)
                self.request.sendall(encode(poisoned(question)))


@contextmanager
def impostor() -> Iterator[Impostor]:
    with Impostor() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_slave_takes_no_tables_of_who_registers_as_its_master(tmp_path: Path) -> None:
    """A real slave and name server; the impostor registers in the name of its master."""
    secret = tmp_path / "group.secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    with name_server(tmp_path) as address, impostor() as server:
        settings = (f"dLegerGroupSecretFile={secret}", "haMasterAddress=127.0.0.1:1")
        slave = PlainBroker(tmp_path, address, "SLAVE", *settings)
        host, port = server.server_address[:2]
        fields = {
            "brokerName": NAME, "brokerAddr": f"{host}:{port}", "clusterName": "DefaultCluster",
            "haServerAddr": f"{host}:{port}", "brokerId": "0", "compressed": "false",
            "bodyCrc32": "0",
        }  # fmt: skip
        with slave.start() as running:
            running.wait_until("address")
            with WireClient(address) as client:
                assert client.ask(RequestCode.REGISTER_BROKER.value, fields).code == 0
                doubt = "does not prove the group's secret"
                wait_until(lambda: doubt in running.log_text(), what="a doubt", deadline_s=60.0)
            with slave.client() as client:
                topics = client.ask(RequestCode.GET_ALL_TOPIC_CONFIG.value).body
            assert b"poison" not in topics
            assert server.asked and set(server.asked) <= set(POISON)
