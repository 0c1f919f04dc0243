"""Topics and names: what is built in, what a send creates, what is refused."""

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.config.built_in_topics import built_in_topics
from ledgermq.state import names
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import InvalidRequestError, SystemBusyError, TopicNotFoundError
from ledgermq.state.topics import TopicConfig, TopicTable, topic_for_send


def table_of(*topics: TopicConfig, topics_max: int = 100) -> TopicTable:
    table = TopicTable(topics_max)
    for topic in topics:
        table.put(topic, 1)
    return table


PARENT = TopicConfig("TBW102", 8, 8, 7)


def test_built_in_topics_are_those_of_upstream() -> None:
    config = load_broker_config(None, {"brokerName": "b", "brokerClusterName": "c"})
    found = {t.name: (t.read_queue_count, t.permission) for t in built_in_topics(config)}
    assert found == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "c": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "c_REPLY_TOPIC": (1, 6),
    }


def test_default_topic_is_absent_without_automatic_creation() -> None:
    config = load_broker_config(None, {"autoCreateTopicEnable": "false"})
    assert "TBW102" not in {topic.name for topic in built_in_topics(config)}


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (20, 8), (0, 1), (-3, 1)])
def test_send_creates_topic_with_bounded_queues(asked: int, made: int) -> None:
    topic = topic_for_send(table_of(PARENT), "New", "TBW102", asked, 0)
    assert (topic.read_queue_count, topic.write_queue_count, topic.permission) == (made, made, 6)


def test_topic_that_a_send_creates_has_no_attributes() -> None:
    parent = TopicConfig("P", 8, 8, 7, attributes={"message.type": "FIFO"})
    assert topic_for_send(table_of(parent), "New", "P", 4, 0).attributes == {}


def test_topic_without_attributes_is_written_as_4_9_does() -> None:
    assert "attributes" not in PARENT.to_json()


def test_send_does_not_create_from_missing_or_closed_parent() -> None:
    with pytest.raises(TopicNotFoundError, match="autoCreateTopicEnable"):
        topic_for_send(table_of(), "New", "TBW102", 4, 0)
    with pytest.raises(TopicNotFoundError, match="inherit bit"):
        topic_for_send(table_of(TopicConfig("P", 1, 1, 6)), "New", "P", 4, 0)


def test_full_table_refuses_with_numbers_and_key() -> None:
    with pytest.raises(SystemBusyError, match="1 topics, allowed are 1 .*maxTopicCount"):
        table_of(PARENT, topics_max=1).check_room("New")
    with pytest.raises(SystemBusyError, match="3 topics, allowed are 3"):
        table_of(PARENT, topics_max=3).check_room("New", 2)


def test_version_changes_only_with_the_content() -> None:
    table = table_of(PARENT)
    before = (table.version, table.generation)
    assert not table.put(PARENT, 5)
    assert (table.version, table.generation) == before
    assert table.put(TopicConfig("TBW102", 9, 9, 7), 5)
    assert table.version == DataVersion(5, 2)
    assert table.remove("TBW102", 6)
    assert not table.remove("TBW102", 7)
    assert table.generation == before[1] + 2


def test_json_goes_both_ways() -> None:
    table = table_of(PARENT, TopicConfig("T", 3, 4, 2, "MULTI_TAG", 1, True))
    table.put(TopicConfig("F", 1, 1, attributes={"message.type": "FIFO"}), 1)
    other = TopicTable(100)
    other.load_json(table.to_json())
    assert other.all() == table.all()
    assert other.get("F").message_type == "FIFO"
    assert other.version == table.version


def test_json_of_strangers_is_read_with_defaults() -> None:
    table = TopicTable(100)
    table.load_json({"topicConfigTable": {"T": {"perm": "6", "attributes": {}}, "U": 5}})
    assert table.all() == [TopicConfig("T")]
    table.load_json({"topicConfigTable": []})
    assert table.all() == []


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "a/b", "a\0", "ü", "x" * 128])
def test_names_that_no_topic_may_have(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        names.check_topic_name(name)


def test_names_that_topics_have() -> None:
    for name in ("a", "%RETRY%g", "A-b_c|d", "x" * 127):
        names.check_topic_name(name)
    names.check_group_name("x" * 255)
    with pytest.raises(InvalidRequestError, match="256"):
        names.check_group_name("x" * 256)
    assert names.is_system_topic("rmq_sys_X")
    assert not names.is_system_topic("X")
