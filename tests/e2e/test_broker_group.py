"""Three broker processes: who serves, what a follower refuses, what survives the leader."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.wire_client import WireClient, pull_fields
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram
from tests.waiting import wait_until

# A follower that is cut off learns of it soon; elections are quick.
SETTINGS = ("offsetReplicationIntervalMs=50", "flushDiskType=ASYNC_FLUSH")


class Group:
    """Three members; each may be killed and started again."""

    def __init__(self, folder: Path, settings: Sequence[str] = SETTINGS) -> None:
        self._folder = folder
        self._settings = settings
        ports = free_ports(6)
        self._ports = ports[:3]
        self._peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports[3:]))
        self.members: dict[int, LiveProgram] = {}

    def start(self, number: int, stack: ExitStack) -> None:
        words = [
            "broker", "--json", f"listenPort={self._ports[number]}", "brokerIP1=127.0.0.1",
            "brokerName=group", f"storePathRootDir={self._folder / str(number)}",
            "enableDLegerCommitLog=true", "dLegerGroup=group", f"dLegerPeers={self._peers}",
            f"dLegerSelfId=n{number}", *SMALL_STORE, *self._settings,
        ]  # fmt: skip
        program = LiveProgram(words, self._folder / f"n{number}.log")
        stack.enter_context(program)
        self.members[number] = program

    def leader(self) -> int:
        def find() -> list[int]:
            return [
                number
                for number, member in self.members.items()
                if member.is_running and member.status.get("serving")
            ]

        return wait_until(find, what="a leader that serves")[0]

    def elections_count(self) -> int:
        """How often a member came to lead so far, by the logs."""
        logs = [member.log_text() for member in self.members.values()]
        return sum(log.count("is LEADER in term") for log in logs)

    def wait_until_all_count(self) -> None:
        """Waits until every member votes.

        A member that comes to a group in which others wrote already cannot know whether it has
        forgotten something: it votes and counts again when the others committed without it.
        """

        def is_counted(number: int) -> bool:
            log = self.members[number].log_text()
            return log.count("recovering, no vote") == log.count("recovered, it votes")

        def is_whole() -> bool:
            try:
                with WireClient(self.members[self.leader()].address) as client:
                    client.send("Warm", 0, b"x")
            except OSError:
                # The leadership moves.
                return False
            roles = [member.status.get("role") for member in self.members.values()]
            return set(roles) <= {"LEADER", "FOLLOWER"} and all(map(is_counted, self.members))

        wait_until(is_whole, what="a group in which all members count", deadline_s=60)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        members = Group(tmp_path)
        for number in range(3):
            members.start(number, stack)
        members.wait_until_all_count()
        yield members


def ask(client: WireClient, code: RequestCode, **fields: Any) -> RemotingCommand:
    return client.ask(code.value, {key: str(value) for key, value in fields.items()})


def test_leader_serves_and_its_state_survives_it(group: Group) -> None:
    first, topic = _leader_with_followers(group)
    followers = [number for number in group.members if number != first]
    names = {"consumerGroup": "kept", "topic": topic, "queueId": 0}
    # Both followers have heard the offset: whoever leads next knows it.
    for number in followers:
        with WireClient(group.members[number].address) as client:
            wait_until(
                lambda client=client: (
                    ask(  # type: ignore[misc]
                        client, RequestCode.QUERY_CONSUMER_OFFSET, **names
                    ).ext_fields
                    == {"offset": "4"}
                ),
                what="the offset on a follower",
            )
    settings = {"consumeMessageOrderly": True, "consumeTimeoutMinute": 30}
    with WireClient(group.members[first].address) as client:
        fields = {
            "topic": "Fifo", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
            "perm": 6, "topicFilterType": "SINGLE_TAG", "attributes": "+message.type=FIFO",
        }  # fmt: skip
        assert ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields).code == 0
        body = json.dumps({"groupName": "kept", **settings}).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert client.ask(code.value, None, body).code == 0
        # One queue is set back; answered when it is committed.
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        fields = {"topic": topic, "group": "kept", "timestamp": 0, "isForce": "true"}
        assert ask(client, code, **fields, queueId=0, offset=3).code == 0
    group.members[first].kill()
    second = group.leader()
    assert second != first
    with WireClient(group.members[second].address) as client:
        assert [record.body for record in client.read_queue(topic, 0)] == [
            b"%d" % number for number in range(10)
        ]
        stored = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **names)
        assert stored.ext_fields == {"offset": "3"}
        shown = json.loads(ask(client, RequestCode.GET_TOPIC_CONFIG, topic="Fifo").body)
        assert shown["attributes"] == {"message.type": "FIFO"}
        assert client.send("Fifo", 0, b"normal").code == ResponseCode.MESSAGE_ILLEGAL
        shown = json.loads(ask(client, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="kept").body)
        assert {name: shown[name] for name in settings} == settings
        answer = client.send(topic, 0, b"after")
        assert answer.code == 0 and answer.ext_fields is not None
        assert answer.ext_fields["queueOffset"] == "10"


def test_leader_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    """Its silence would be noticed after six minutes only."""
    with ExitStack() as stack:
        group = Group(tmp_path, [*SETTINGS, "heartBeatTimeIntervalMs=120000"])
        for number in range(3):
            group.start(number, stack)
        group.wait_until_all_count()
        first = group.leader()
        group.members[first].kill()
        assert group.leader() != first

        def is_taken() -> bool:
            # On a starved machine the two may elect once more.
            with WireClient(group.members[group.leader()].address) as client:
                return client.send("After", 0, b"x").code == 0

        wait_until(is_taken, what="a message that the others take")


def _leader_with_followers(group: Group) -> tuple[int, str]:
    """Ten messages and an offset by a leader whose followers do as they must.

    On a starved machine the leadership may move meanwhile: then what was asked of a follower was
    asked of a leader, which does it, and all of it is done again with a new topic.

    Returns:
        The leader and the topic.
    """
    while True:
        elections = group.elections_count()
        leader, topic = group.leader(), f"Kept{elections}"
        try:
            with WireClient(group.members[leader].address) as client:
                for number in range(10):
                    assert client.send(topic, 0, b"%d" % number).code == 0
                names = {"consumerGroup": "kept", "topic": topic, "queueId": 0}
                ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, **names, commitOffset=4)
            for number in group.members:
                if number != leader:
                    _check_follower(group, number, leader, topic)
        except AssertionError:
            if group.elections_count() == elections:
                raise
        else:
            return leader, topic


def _check_follower(group: Group, number: int, leader: int, topic: str) -> None:
    """A follower gives committed messages away, and refuses everything that changes state."""
    member = group.members[number]
    wait_until(lambda: member.status.get("role") == "FOLLOWER", what="a follower")
    status = member.status
    assert (status["broker_id"], status["serving"]) == (number + 1, False)
    with WireClient(member.address) as client:
        refused = client.send(topic, 0, b"x")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark is not None and f"n{leader} leads" in refused.remark
        for code, fields in (
            (RequestCode.UPDATE_CONSUMER_OFFSET, {"commitOffset": 1, "queueId": 0}),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, {}),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "kept"}),
        ):
            answer = ask(client, code, topic=topic, consumerGroup="kept", **fields)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        lock = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": []}).encode()
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            answer = client.ask(code.value, None, lock)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        # Tools ask every broker to delete a topic; the leader alone does it.
        agreed = ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
        assert agreed.code == 0 and f"n{leader} removes it" in (agreed.remark or "")
        wait_until(
            lambda: len(client.read_queue(topic, 0)) == 10, what="all messages on a follower"
        )
        # Its queue may only be behind: an offset outside of it is not corrected.
        beyond = client.ask(RequestCode.PULL_MESSAGE.value, pull_fields(topic, 0, 99))
        assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert beyond.ext_fields is not None and beyond.ext_fields["nextBeginOffset"] == "99"


def test_leader_without_majority_fails_waiting_sends(group: Group) -> None:
    leader = group.leader()
    with WireClient(group.members[leader].address) as client:
        assert client.send("Waiting", 0, b"first").code == 0
        for number, member in group.members.items():
            if number != leader:
                member.kill()
        answer = client.send("Waiting", 0, b"nobody confirms this")
        # Which of the two comes first, the loss of leadership or the time limit, depends on
        # timers.
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE)
        wait_until(
            lambda: client.send("Waiting", 0, b"x").code == ResponseCode.SERVICE_NOT_AVAILABLE,
            what="a leader that stepped down",
        )
        assert [record.body for record in client.read_queue("Waiting", 0)] == [b"first"]


def test_stopped_leader_answers_what_waits_and_ends_cleanly(group: Group) -> None:
    leader = group.leader()
    member = group.members[leader]
    with WireClient(member.address) as client:
        assert client.send("Graceful", 0, b"x").code == 0
    assert member.stop() == 0
    assert "Traceback" not in member.log_text()
    assert "hands the leadership to" in member.log_text()
    assert not (member._log.parent / str(leader) / "abort").exists()
    assert group.leader() != leader
