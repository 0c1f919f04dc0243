"""What a send into light queues must fulfil, and the topics and groups that need no table."""

from typing import Any

import pytest

from ledgermq.broker.sends.light_admission import LightAdmission
from ledgermq.commitlog import AppendMessage
from ledgermq.protocol.batch import encode_batch
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX, decode_properties
from ledgermq.state import errors
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts
from tests.unit.broker.sends.test_send import command, send

A, B = "%LMQ%a", "%LMQ%b"
NAMED = "INNER_MULTI_DISPATCH\x01"


def leader(**settings: Any) -> Parts:
    on = {"enableLmq": "true", "enableMultiDispatch": "true"}
    return Parts(**(on | settings)).lead()


def light(*names: str, **changes: Any) -> RemotingCommand:
    properties = NAMED + ",".join(names) + "\x02" + changes.pop("properties", "")
    return command(properties=properties, **changes)


def test_message_keeps_the_names_of_its_light_queues() -> None:
    stored = send(leader(), light(A, B, properties="WAIT\x01true\x02K\x01v"))
    expected = {"INNER_MULTI_DISPATCH": f"{A},{B}", "K": "v", "CLUSTER": "DefaultCluster"}
    assert decode_properties(stored.properties) == expected
    assert stored.topic == "T"


@pytest.mark.parametrize("value", ["a", f"{A},T", f"{A},", f"{A}, {B}", "%LMQ%/"])
def test_name_that_is_no_light_queue_is_refused(value: str) -> None:
    parts = leader()
    with pytest.raises(errors.IllegalMessageError, match="INNER_MULTI_DISPATCH"):
        send(parts, light(value))
    element = (0, b"body", f"{NAMED}{value}".encode())
    with pytest.raises(errors.IllegalMessageError, match="INNER_MULTI_DISPATCH"):
        send(parts, command(encode_batch([element]), batch="true"))
    assert parts.store.messages == []


@pytest.mark.parametrize("key", ["enableLmq", "enableMultiDispatch"])
def test_property_means_nothing_unless_both_keys_are_on(key: str) -> None:
    stored = send(leader(**{key: "false"}), light("anything"))
    assert decode_properties(stored.properties)["INNER_MULTI_DISPATCH"] == "anything"


def test_light_queues_have_a_limit() -> None:
    parts = leader(maxLmqConsumeQueueNum="2")
    for name in (A, B):
        parts.store.messages.append(send(parts, command())._replace(topic=name, queue_id=0))
    send(parts, light(A, B))
    for request in (light(A, "%LMQ%c"), command(topic="%LMQ%c", queueId="0")):
        with pytest.raises(errors.SystemBusyError, match="maxLmqConsumeQueueNum") as caught:
            send(parts, request)
        assert "there are 2 light queues and it would make 1 more, allowed are 2" in str(
            caught.value
        )
    assert send(parts, command(topic=A, queueId="0")).topic == A


def test_light_queues_that_are_not_there_yet_count() -> None:
    """In one turn, or with messages that wait, any number came into being."""
    parts = leader(maxLmqConsumeQueueNum="3")
    send(parts, light(A, B))
    send(parts, light(A, "%LMQ%c", properties="DELAY\x012"))
    with pytest.raises(errors.SystemBusyError, match="there are 3 light queues"):
        send(parts, light("%LMQ%d"))
    send(parts, light(B, "%LMQ%c"))


def test_light_queues_are_not_counted_for_each_message() -> None:
    counts, now_s = [0], [0.0]

    class Queues:
        def count_light_queues(self) -> int:
            counts[0] += 1
            return 3

        def queues(self, topic: str) -> list[int]:
            return []

    config = Parts(enableLmq="true", maxLmqConsumeQueueNum="10").config
    admission = LightAdmission(config, Queues(), lambda: now_s[0])
    for number in range(7):
        admission.check_topic(f"%LMQ%{number}")
    for _ in range(100):
        with pytest.raises(errors.SystemBusyError):
            admission.check_topic("%LMQ%late")
    assert counts == [1]
    now_s[0] = 6.0
    with pytest.raises(errors.SystemBusyError):
        admission.check_topic("%LMQ%late")
    # What did not come within a minute counts no more.
    now_s[0] = 70.0
    admission.check_topic("%LMQ%late")
    assert counts == [3]


def test_there_must_be_room_for_the_offsets() -> None:
    rest = PROPERTIES_BYTES_MAX - len(f"{NAMED}{A}\x02K\x01\x02CLUSTER\x01DefaultCluster")
    spare = len("\x02INNER_MULTI_QUEUE_OFFSET\x01") + 20
    send(leader(), light(A, properties="K\x01" + "x" * (rest - spare)))
    with pytest.raises(errors.IllegalMessageError, match=f"{PROPERTIES_BYTES_MAX + 1} bytes"):
        send(leader(), light(A, properties="K\x01" + "x" * (rest - spare + 1)))


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"properties": "DELAY\x012"}, "SCHEDULE_TOPIC_XXXX"),
        ({"properties": "TRAN_MSG\x01true\x02PGROUP\x01g"}, "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
def test_message_that_waits_is_checked_when_it_is_sent(changes: dict[str, str], topic: str) -> None:
    assert send(leader(), light(A, **changes)).topic == topic
    with pytest.raises(errors.IllegalMessageError, match="INNER_MULTI_DISPATCH"):
        send(leader(), light("no-light-queue", **changes))


def test_every_light_queue_is_a_topic_without_an_entry() -> None:
    parts = leader()
    known = len(parts.state.topics)
    assert parts.state.topics.get(A) == TopicConfig(A, 1, 1)
    assert parts.state.topics.find("%LMQ%/") is None
    stored: AppendMessage = send(parts, command(topic=A, queueId="0"))
    assert (stored.topic, stored.queue_id) == (A, 0)
    assert len(parts.state.topics) == known
    with pytest.raises(errors.InvalidRequestError):
        send(parts, command(topic=A, queueId="1"))
    with pytest.raises(errors.TopicNotFoundError):
        leader(enableLmq="false").state.topics.get(A)


def test_group_that_is_named_as_a_light_queue_needs_no_entry() -> None:
    parts = leader(autoCreateSubscriptionGroup="false")
    known = len(parts.state.groups)
    assert parts.state.group_for_use("%LMQ%group").name == "%LMQ%group"
    assert len(parts.state.groups) == known
    for name in ("%LMQ%/", "%LMQ%" + "x" * 300):
        with pytest.raises((errors.InvalidRequestError, errors.GroupNotFoundError)):
            parts.state.group_for_use(name)
    off = leader(autoCreateSubscriptionGroup="false", enableLmq="false")
    with pytest.raises(errors.GroupNotFoundError):
        off.state.group_for_use("%LMQ%group")


def test_batch_element_needs_room_for_its_offsets_too() -> None:
    named = f"{NAMED}{A}\x02K\x01"
    spare = len("\x02INNER_MULTI_QUEUE_OFFSET\x01") + 20
    fits = named + "x" * (PROPERTIES_BYTES_MAX - len(named) - spare)
    for text, is_taken in ((fits, True), (fits + "x", False)):
        parts = leader()
        request = command(encode_batch([(0, b"body", text.encode())]), batch="true")
        if is_taken:
            send(parts, request)
        else:
            with pytest.raises(errors.IllegalMessageError):
                send(parts, request)
        assert len(parts.store.messages) == is_taken


@pytest.mark.parametrize("is_on", ["true", "false"])
def test_offsets_that_a_sender_made_up_are_dropped(is_on: str) -> None:
    forged = "INNER_MULTI_QUEUE_OFFSET\x017\x02K\x01v"
    stored = send(leader(enableLmq=is_on), command(properties=forged))
    assert decode_properties(stored.properties) == {"K": "v", "CLUSTER": "DefaultCluster"}
    batch = encode_batch([(0, b"body", forged.encode())])
    stored = send(leader(enableLmq=is_on), command(batch, batch="true"))
    assert decode_properties(stored.properties) == {"K": "v"}


def test_light_queues_that_came_into_being_count_once() -> None:
    there, now_s = [f"%LMQ%{number}" for number in range(3)], [0.0]

    class Queues:
        def count_light_queues(self) -> int:
            return len(there)

        def queues(self, topic: str) -> list[int]:
            return [0] if topic in there else []

    config = Parts(enableLmq="true", maxLmqConsumeQueueNum="10").config
    admission = LightAdmission(config, Queues(), lambda: now_s[0])
    for number in range(3, 7):
        admission.check_topic(f"%LMQ%{number}")
        there.append(f"%LMQ%{number}")
    now_s[0] = 6.0
    with pytest.raises(errors.SystemBusyError, match="there are 7 light queues"):
        admission._check_room([f"%LMQ%{number}" for number in range(7, 11)])
    for number in range(7, 10):
        admission.check_topic(f"%LMQ%{number}")
