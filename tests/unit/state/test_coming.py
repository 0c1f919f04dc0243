"""Limits of the tables count what is on its way, and bytes as well as entries."""

import json
from dataclasses import replace

import pytest

from ledgermq.protocol.group_settings import GroupSettings, SimpleSubscriptionData
from ledgermq.state.errors import CommitTimeoutError, SystemBusyError
from ledgermq.state.named_table import NamedTable
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts


def put(parts: Parts, topic: TopicConfig) -> None:
    """As a tool does."""
    parts.state.check_topic(topic, None)
    parts.state.put_topic(topic)


def room_for(parts: Parts) -> int:
    return parts.config.topics_max - len(parts.state.topics)


def test_topics_of_tools_that_are_on_their_way_are_counted() -> None:
    """Requests of one turn once passed the limit together."""
    parts = Parts(maxTopicCount="20").lead(is_prompt=False)
    for number in range(room_for(parts)):
        put(parts, TopicConfig(f"T{number}"))
    for _ in range(2):
        with pytest.raises(SystemBusyError, match=r"there are 20 topics, allowed are 20"):
            put(parts, TopicConfig("Late"))
        with pytest.raises(SystemBusyError, match="maxTopicCount"):
            parts.state.make_topic(TopicConfig("Late"))
        # One that is on its way, or there, may be changed.
        put(parts, TopicConfig("T0", 2, 2))
        parts.commit_state()
    assert len(parts.state.topics) == 20


def test_what_the_log_refused_leaves_its_place_and_what_is_late_keeps_it() -> None:
    parts = Parts(maxTopicCount="20").lead(is_prompt=False)
    count = room_for(parts)
    for number in range(count):
        put(parts, TopicConfig(f"T{number}"))
    parts.commit_state(CommitTimeoutError("no majority"))
    with pytest.raises(SystemBusyError):
        put(parts, TopicConfig("Late"))
    parts = Parts(maxTopicCount="20").lead(is_prompt=False)
    for number in range(count):
        put(parts, TopicConfig(f"T{number}"))
    parts.commit_state(SystemBusyError("refused"))
    put(parts, TopicConfig("Late"))


def test_a_send_finds_the_topic_that_a_tool_is_making() -> None:
    parts = Parts().lead(is_prompt=False)
    put(parts, TopicConfig("T", 3, 3))
    topic = parts.state.find_topic("T")
    assert topic is not None and topic.queue_count == 3 and parts.state.topics.find("T") is None


@pytest.mark.parametrize(
    "entry",
    [
        TopicConfig("T"),
        TopicConfig(
            "T" * 127, 65_536, 65_536, 7, topic_sys_flag=-(2**31),
            attributes={"message.type": "TRANSACTION", "x": "\u4e2d\U0001f600" * 20},
        ),
        SubscriptionGroup("g"),
        SubscriptionGroup(
            "g" * 255, retry_queue_count=65_536, retries_max=-(2**31), broker_id=-(2**63),
            slow_reader_broker_id=-(2**63),
            settings=GroupSettings(
                subscription_data_set=[SimpleSubscriptionData("T", expression="\u4e2d" * 99)]
            ),
        ),
    ],
)  # fmt: skip
def test_bytes_of_an_entry_are_those_of_its_json_at_most(
    entry: TopicConfig | SubscriptionGroup,
) -> None:
    assert len(json.dumps({entry.name: entry.to_json()})) <= entry.json_bytes


def test_bytes_of_a_table_are_bounded_with_what_is_on_its_way() -> None:
    parts = Parts().lead(is_prompt=False)
    table: NamedTable[TopicConfig] = parts.state.topics
    room = TopicConfig("T0", attributes={"a": "x" * 200})
    table._bytes_max = table.json_bytes + 2 * room.json_bytes
    put(parts, room)
    put(parts, replace(room, name="T1"))
    with pytest.raises(SystemBusyError, match=r"would take \d+ bytes, allowed are"):
        put(parts, TopicConfig("T2"))
    # Less in place of more is welcome.
    put(parts, TopicConfig("T1"))
    parts.commit_state()
    with pytest.raises(SystemBusyError):
        put(parts, replace(room, name="T2"))
    before = table.json_bytes
    parts.state.remove_topic("T0")
    parts.commit_state()
    assert table.json_bytes == before - room.json_bytes
    put(parts, TopicConfig("T2"))


def test_bytes_of_a_table_are_counted_by_every_way_in() -> None:
    parts = Parts().lead()
    table = parts.state.topics
    put(parts, TopicConfig("A", attributes={"a": "x"}))
    put(parts, TopicConfig("A"))
    table.put(TopicConfig("B"), 1)
    table.remove("B", 2)
    table.replace_range("A", None, {"C": TopicConfig("C")})
    expected = sum(topic.json_bytes for topic in table.all())
    assert table.json_bytes == expected
    table.load_json(table.to_json())
    assert table.json_bytes == expected
