"""What a follower copies from a Java leader, which writes no state into the log."""

import pytest
from twisted.internet.defer import Deferred, succeed

from ledgermq.broker.state_copy import StateCopy, news_of
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts
from tests.unit.broker.trusting import trusting

MASTER = "10.0.0.1:10911"


class JavaLeader:
    """Answers at once, or when it is told to."""

    def __init__(self) -> None:
        self.topics: dict[str, object] = {
            "T": {"attributes": {"message.type": "FIFO"}, "readQueueNums": 3, "writeQueueNums": 2}
        }
        self.groups: dict[str, object] = {"g": {"consumeTimeoutMinute": 30, "retryMaxTimes": 5}}
        self.offsets: dict[str, dict[int, int]] = {"T@g": {0: 7, 1: 1}}
        self.delays: dict[int, int] = {3: 20}
        self.version = {"counter": 7, "timestamp": 1}
        self.code = ResponseCode.SUCCESS
        self.is_slow = False
        self.asked: list[tuple[Deferred[RemotingCommand], RemotingCommand]] = []
        self.stopped_count = 0

    def request(self, command: RemotingCommand, timeout_ms: int) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()
        self.asked.append((answer, command))
        if not self.is_slow:
            self.answer()
        return answer

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for answer, command in asked:
            body = lenient_json.write(
                {
                    RequestCode.GET_ALL_TOPIC_CONFIG: {
                        "topicConfigTable": self.topics,
                        "dataVersion": self.version,
                    },
                    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {
                        "subscriptionGroupTable": self.groups,
                        "dataVersion": self.version,
                    },
                    RequestCode.GET_ALL_CONSUMER_OFFSET: {"offsetTable": self.offsets},
                    RequestCode.GET_ALL_DELAY_OFFSET: {"offsetTable": self.delays},
                }[RequestCode(command.code)]
            )
            answer.callback(command.response(self.code, body=body))

    def stop(self) -> Deferred[None]:
        self.stopped_count += 1
        return succeed(None)


class Scene:
    """A follower of n1, which is a Java member."""

    def __init__(self, *, mirrors_tables: bool = False) -> None:
        self.parts = Parts()
        self.leader = JavaLeader()
        self.master: str | None = MASTER
        self.asked_for_master = 0
        self.parts.leadership.changed("FOLLOWER", 4, "n1")
        self.copy = StateCopy(
            self.parts.leadership,
            self.parts.state,
            is_copied=lambda member_id: member_id == "n1",
            find_master=lambda: self.master,
            ask_for_master=self._ask_for_master,
            connect=self._connect,
            trust=trusting(),
            mirrors_tables=mirrors_tables,
        )

    def _ask_for_master(self) -> None:
        self.asked_for_master += 1

    def _connect(self, address: str) -> JavaLeader:
        assert address == MASTER
        return self.leader

    def run(self, times: int = 2) -> None:
        for _ in range(times):
            self.copy.run()

    def offset(self, queue_id: int) -> int | None:
        return self.parts.state.offsets.find("g", "T", queue_id)


def test_follower_of_a_java_leader_takes_over_its_state() -> None:
    scene = Scene()
    scene.run(1)
    # What name servers told before the change of leader may be another broker.
    assert (scene.asked_for_master, scene.copy.count) == (1, 0)
    scene.run(1)
    state = scene.parts.state
    assert state.topics.get("T").queue_count == 3
    assert state.topics.get("T").attributes == {"message.type": "FIFO"}
    group = state.groups.find("g")
    assert group is not None and group.retries_max == 5
    assert group.settings.consume_timeout_minute == 30
    assert (scene.offset(0), scene.offset(1)) == (7, 1)
    assert state.progress.levels() == {3: 20}
    assert state.unsaved == {"topics", "groups", "offsets"}
    assert scene.leader.stopped_count == 1


def test_nothing_is_removed_and_an_equal_copy_changes_nothing() -> None:
    scene = Scene()
    scene.run()
    version, changes = scene.parts.state.topics.version, scene.parts.changes
    scene.run(1)
    assert (scene.parts.state.topics.version, scene.parts.changes) == (version, changes)
    scene.leader.topics, scene.leader.groups, scene.leader.offsets = {}, {}, {}
    scene.run(1)
    assert scene.copy.count == 3
    assert scene.parts.state.topics.find("T") is not None
    assert scene.offset(0) == 7


def test_a_slave_becomes_like_its_master_whenever_versions_differ() -> None:
    scene = Scene(mirrors_tables=True)
    state = scene.parts.state
    state.topics.put(TopicConfig("OLD", 1, 1), 1)
    state.groups.put(SubscriptionGroup("old"), 1)
    scene.run()
    assert state.topics.find("OLD") is None and state.groups.find("old") is None
    assert state.topics.get("T").queue_count == 3
    assert state.topics.get("T").attributes == {"message.type": "FIFO"}
    assert state.topics.version.to_json() == scene.leader.version
    assert state.groups.version.to_json() == scene.leader.version
    assert (scene.offset(0), scene.offset(1)) == (7, 1)
    group = state.groups.find("g")
    assert group is not None and group.settings.consume_timeout_minute == 30
    changes = scene.parts.changes
    scene.run(1)
    assert scene.parts.changes == changes
    scene.leader.topics, scene.leader.version = {}, {"counter": 8, "timestamp": 1}
    scene.run(1)
    assert state.topics.find("T") is None
    # Consumers of a topic that comes back go on where they were.
    assert scene.offset(0) == 7


def test_offsets_count_where_they_are_ahead_and_later_where_they_change() -> None:
    """A Java leader has been told of our leader's offsets ten seconds ago, perhaps."""
    scene = Scene()
    scene.parts.state.offsets.put({"T@g": {0: 9}})
    scene.run()
    assert (scene.offset(0), scene.offset(1)) == (9, 1)
    scene.leader.offsets = {"T@g": {0: 7, 1: 0}}
    scene.run(1)
    assert (scene.offset(0), scene.offset(1)) == (9, 0)
    # The next term's leader may be behind again.
    scene.parts.leadership.changed("FOLLOWER", 5, "n1")
    scene.parts.state.offsets.put({"T@g": {1: 6}})
    scene.run()
    assert (scene.offset(0), scene.offset(1)) == (9, 6)


@pytest.mark.parametrize(
    ("role", "leader_id"), [("FOLLOWER", "n2"), ("CANDIDATE", None), ("LEADER", "n0")]
)
def test_nobody_else_is_asked(role: str, leader_id: str | None) -> None:
    scene = Scene()
    scene.parts.leadership.changed(role, 4, leader_id)
    scene.run()
    assert (scene.copy.count, scene.asked_for_master) == (0, 0)


def test_answer_that_comes_after_a_change_of_leader_is_left_out() -> None:
    scene = Scene()
    scene.leader.is_slow = True
    scene.run()
    scene.run(1)
    assert len(scene.leader.asked) == 4, "one copy at a time"
    scene.parts.leadership.changed("LEADER", 5, "n0")
    scene.leader.answer()
    assert scene.copy.count == 0
    assert scene.parts.state.topics.find("T") is None
    assert scene.leader.stopped_count == 1


def test_refusal_or_strange_answer_has_the_master_asked_for_again() -> None:
    scene = Scene()
    scene.leader.code = ResponseCode.SYSTEM_ERROR
    scene.run()
    assert (scene.copy.count, scene.asked_for_master) == (0, 2)
    scene.leader.code = ResponseCode.SUCCESS
    scene.leader.topics = {"T": {"readQueueNums": "many"}, "U": []}
    scene.run(1)
    assert scene.copy.count == 1
    assert scene.parts.state.topics.get("T").queue_count == 16
    scene.master = None
    scene.run(1)
    assert scene.asked_for_master == 3


def test_stop_ends_a_copy_under_way() -> None:
    scene = Scene()
    scene.leader.is_slow = True
    scene.run()
    assert scene.copy.stop() is not None
    assert scene.copy.stop() is None
    assert scene.leader.stopped_count == 1


def test_news_are_what_is_ahead_or_has_changed() -> None:
    told = {"T@g": {0: 5, 1: 5, 2: 5}, "T@h": {0: 0}}
    own = {"T@g": {0: 6, 1: 5, 2: 4}}
    assert news_of(told, None, own) == {"T@g": {2: 5}, "T@h": {0: 0}}
    assert news_of(told, {"T@g": {0: 5, 1: 4, 2: 5}}, own) == {"T@g": {1: 5}, "T@h": {0: 0}}
