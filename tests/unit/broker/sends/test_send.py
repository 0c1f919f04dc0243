"""The send processor: what it stores, and the checks that come before."""

from typing import Any

import pytest

from ledgermq.broker.sends import send as sending
from ledgermq.broker.sends.proposals import Limits
from ledgermq.broker.sends.send import without_wait
from ledgermq.commitlog import RECORD_BYTES_MAX, AppendMessage
from ledgermq.protocol.batch import BatchMessage, encode_batch
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.properties import decode_properties
from ledgermq.state import errors
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import HOST, ListConnection, Parts


def command(body: bytes = b"body", *, flag: int = 0, **changes: Any) -> RemotingCommand:
    fields = {
        "producerGroup": "pg",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": "1",
        "bornTimestamp": "17",
        "flag": "9",
        "properties": "",
        **changes,
    }
    return RemotingCommand(
        code=int(RequestCode.SEND_MESSAGE),
        opaque=5,
        flag=flag,
        ext_fields={key: str(value) for key, value in fields.items()},
        body=body,
    )


def send(parts: Parts, request: RemotingCommand) -> AppendMessage:
    parts.sends.send(ListConnection(), request)  # type: ignore[arg-type]
    parts.turn.end()
    return parts.store.messages[-1]


def leader(**settings: str) -> Parts:
    return Parts(**settings).lead()


def keys(count: int, copies: int = 1) -> str:
    return "KEYS\x01" + " ".join([f"k{number}" for number in range(count)] * copies)


@pytest.mark.parametrize("others", ["", "\x02DELAY\x013", "\x02TRAN_MSG\x01true\x02PGROUP\x01pg"])
def test_message_has_a_limited_number_of_keys(others: str) -> None:
    """Each costs every member work when it is stored, and again each time it is looked at."""
    for text in (keys(128), keys(128, copies=3), "A\x01" + "x y " * 2000):
        send(leader(), command(properties=text + others))
    for text in (keys(129), keys(5000), f"{keys(3)}\x02{keys(129)}"):
        count = 5000 if "k4999" in text else 129
        with pytest.raises(errors.IllegalMessageError) as refused:
            send(leader(), command(properties=text + others))
        assert f"KEYS names {count} different keys, allowed are 128" in str(refused.value)


@pytest.mark.parametrize("count", [128, 129])
def test_message_of_a_batch_has_a_limited_number_of_keys(count: int) -> None:
    parts = leader()
    texts = (b"KEYS\x01a", keys(count).encode(), b"")
    body = encode_batch([BatchMessage(0, b"x", text) for text in texts])
    request = command(body, batch="true")
    if count == 128:
        assert send(parts, request).body == b"x" and len(parts.store.messages) == 3
    else:
        with pytest.raises(errors.IllegalMessageError, match="129 different keys"):
            send(parts, request)
        assert parts.store.messages == []


def test_message_is_stored_as_it_was_sent() -> None:
    stored = send(leader(), command(reconsumeTimes="3"))
    assert stored == AppendMessage(
        "T", 1, 9, 1, 17, (b"\x0a\x00\x00\x09", 5555), HOST, 3, 0, b"body",
        b"CLUSTER\x01DefaultCluster",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("", {}),
        ("WAIT\x01true\x02", {}),
        ("WAIT\x01false", {}),
        ("A\x01b\x02WAIT\x01true\x02C\x01d\x02", {"A": "b", "C": "d"}),
        ("A\x01b\x02WAIT\x01true", {"A": "b"}),
        ("WAIT\x01true\x02A\x01b\x02WAIT\x01true\x02", {"A": "b"}),
        ("MYWAIT\x01true\x02", {"MYWAIT": "true"}),
        ("MYWAIT\x01true\x02WAIT\x01true\x02A\x01b", {"MYWAIT": "true", "A": "b"}),
        ("A\x01WAIT\x01true\x02", {"A": "WAIT\x01true"}),
        ("A\x01b\x02CLUSTER\x01other\x02", {"A": "b"}),
        ("MYDELAY\x013\x02", {"MYDELAY": "3"}),
        ("DELAY\x010\x02A\x01b", {"DELAY": "0", "A": "b"}),
        ("K\x01\u00fc\u4e2d\U0001f600", {"K": "\u00fc\u4e2d\U0001f600"}),
    ],
)
def test_properties_lose_wait_and_gain_the_cluster(given: str, stored: dict[str, str]) -> None:
    message = send(leader(), command(properties=given))
    assert decode_properties(message.properties) == {**stored, "CLUSTER": "DefaultCluster"}


def test_properties_that_are_too_long_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "parse_properties", None)
    monkeypatch.setattr(sending, "without_wait", None)
    for text in ("WAIT\x01\x02" * 7000, "KEYS\x01" + "k " * 17_000, "DELAY\x013\x02" * 5000):
        with pytest.raises(errors.IllegalMessageError, match="characters, allowed are 32767"):
            send(leader(), command(properties=text))
        batch = encode_batch([BatchMessage(0, b"x", b"")])
        with pytest.raises(errors.IllegalMessageError, match="characters, allowed are 32767"):
            send(leader(), command(batch, properties=text, batch="true"))


def test_dead_letters_do_not_take_the_quick_road() -> None:
    """Each may name the topic that it came from, about which that road asks nobody."""
    parts = leader()
    parts.state.put_topic(TopicConfig("%DLQ%g", 2, 2))
    for topic in ("%DLQ%g", "T"):
        send(parts, command(topic=topic))
        send(parts, command(topic=topic))
    assert list(parts.sends._quick_topics) == [b"T"]


def test_wait_is_cut_out_element_by_element() -> None:
    assert without_wait("WAIT\x01a\x02WAIT\x01b") == ""
    assert without_wait("A\x01b\x02WAIT\x01true\x02WAIT\x01x") == "A\x01b"
    assert without_wait("NOWAIT\x01b\x02WAIT\x01x\x02A\x01b\x02") == "NOWAIT\x01b\x02A\x01b\x02"
    assert without_wait("A\x01b\x02\x02WAIT\x01") == "A\x01b\x02"


def test_topic_is_created_before_its_first_message() -> None:
    parts = leader()
    parts.is_prompt = False
    send(parts, command())
    # Nobody sees it yet; its messages go behind it.
    assert parts.state.topics.find("T") is None and len(parts.written) == 1
    send(parts, command())
    assert len(parts.commit_state()) == 1
    topic = parts.state.topics.find("T")
    assert topic is not None and topic.write_queue_count == 4
    send(parts, command())
    assert parts.written == []


def test_one_address_creates_so_many_topics_a_second() -> None:
    parts = leader(maxNewTopicsPerAddress="2", maxNewTopicsAtOnce="20")
    for number in range(20):
        send(parts, command(topic=f"T{number}"))
    with pytest.raises(errors.SystemBusyError, match="more than 2 topics a second"):
        send(parts, command(topic="T20"))
    # Topics that are there cost nothing.
    send(parts, command(topic="T19"))
    parts.now_ms += 500
    send(parts, command(topic="T20"))
    with pytest.raises(errors.SystemBusyError):
        send(parts, command(topic="T21"))


def test_checks_are_made_again_when_topics_change() -> None:
    parts = leader()
    send(parts, command(queueId="3"))
    send(parts, command(queueId="3"))
    parts.state.put_topic(TopicConfig("T", 1, 1))
    with pytest.raises(errors.InvalidRequestError, match=r"queueId\[3\] is illegal"):
        send(parts, command(queueId="3"))


def test_broker_that_does_not_serve_refuses() -> None:
    parts = leader()
    parts.leadership.changed("FOLLOWER", 2, "n1")
    with pytest.raises(errors.ServiceUnavailableError, match="n1 leads"):
        send(parts, command())
    assert parts.store.messages == []


def test_early_sends_are_refused() -> None:
    parts = leader(startAcceptSendRequestTimeStamp="1800000000000")
    with pytest.raises(errors.ServiceUnavailableError, match="startAcceptSendRequestTimeStamp"):
        send(parts, command())


def test_ordered_topic_of_a_closed_broker_is_refused() -> None:
    parts = leader(brokerPermission="4")
    parts.state.put_topic(TopicConfig("T", 4, 4, is_ordered=True))
    with pytest.raises(errors.NoPermissionError, match="brokerPermission is 4"):
        send(parts, command())
    parts.state.put_topic(TopicConfig("T", 4, 4))
    send(parts, command())


@pytest.mark.parametrize("name", ["STATE", "QUEUES", "TERM", "ANYTHING"])
def test_topics_of_the_brokers_own_records_take_no_message(name: str) -> None:
    """Who reads the log takes them for the broker's word: the state, the ends of queues."""
    parts = leader()
    with pytest.raises(errors.NoPermissionError, match="is forbidden"):
        send(parts, command(topic=f"rmq_sys_LEDGERMQ_{name}"))
    assert parts.store.messages == []


def test_longest_record_passes_and_one_byte_more_does_not() -> None:
    parts = leader()
    fixed = 91 + len("T") + len(b"CLUSTER\x01DefaultCluster") + 24
    send(parts, command(b"x" * (RECORD_BYTES_MAX - fixed)))
    with pytest.raises(errors.IllegalMessageError, match=r"allowed are .*maxMessageSize"):
        send(parts, command(b"x" * (RECORD_BYTES_MAX - fixed + 1)))


def test_delayed_message_waits_in_the_queue_of_its_level() -> None:
    request = command(properties="DELAY\x013\x02WAIT\x01true\x02A\x01b", queueId="2")
    stored = send(leader(), request)
    assert (stored.topic, stored.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert decode_properties(stored.properties) == {
        "DELAY": "3", "WAIT": "true", "A": "b", "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip


def test_level_above_the_highest_is_the_highest() -> None:
    stored = send(leader(messageDelayLevel="1s 2s"), command(properties="DELAY\x0199"))
    assert stored.queue_id == 1
    assert decode_properties(stored.properties)["DELAY"] == "2"


def test_answer_names_the_queue_that_was_asked_for() -> None:
    parts = leader()
    connection = ListConnection()
    request = command(properties="DELAY\x011", queueId="3")
    parts.sends.send(connection, request)  # type: ignore[arg-type]
    parts.turn.end()
    parts.proposals.committed(1)
    [answer] = connection.take()
    assert answer.ext_fields is not None and answer.ext_fields["queueId"] == "3"


def test_half_message_is_seen_by_nobody_and_waits_for_no_time() -> None:
    parts = leader()
    properties = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02DELAY\x013\x02WAIT\x01true"
    stored = send(parts, command(properties=properties, sysFlag="5", queueId="2"))
    assert (stored.topic, stored.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    # Not prepared as the flag has it: it takes a place in the half queue.
    assert stored.sys_flag == 1
    assert decode_properties(stored.properties) == {
        "TRAN_MSG": "true", "PGROUP": "pg", "WAIT": "true", "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip
    topic = parts.state.topics.find("RMQ_SYS_TRANS_HALF_TOPIC")
    assert topic is not None and topic.write_queue_count == 1


def test_transactions_are_refused_by_configuration() -> None:
    with pytest.raises(errors.NoPermissionError, match="rejectTransactionMessage"):
        send(leader(rejectTransactionMessage="true"), command(properties="TRAN_MSG\x01TRUE"))
    # Any other value makes an ordinary message of it, as in Java.
    assert send(leader(), command(properties="TRAN_MSG\x01no")).topic == "T"


def test_retry_of_a_message_from_a_transaction_is_an_ordinary_message() -> None:
    request = command(topic="%RETRY%g", properties="TRAN_MSG\x01true\x02DELAY\x013", queueId="0",
                      sysFlag="9")  # fmt: skip
    stored = send(leader(), request)
    assert (stored.topic, stored.queue_id, stored.sys_flag) == ("SCHEDULE_TOPIC_XXXX", 2, 1)
    assert decode_properties(stored.properties)["REAL_TOPIC"] == "%RETRY%g"


def test_dead_letter_does_not_wait() -> None:
    request = command(topic="%RETRY%g", properties="DELAY\x013", queueId="0", reconsumeTimes="16")
    stored = send(leader(), request)
    assert stored.topic == "%DLQ%g" and b"DELAY" not in stored.properties


def test_multi_tag_topic_marks_its_messages() -> None:
    parts = leader()
    parts.state.put_topic(TopicConfig("T", 4, 4, filter_type="MULTI_TAG"))
    assert send(parts, command()).sys_flag == 3


def test_retry_topic_belongs_to_its_group() -> None:
    parts = leader()
    parts.state.put_group(SubscriptionGroup("g", retries_max=2))
    retry = {"topic": "%RETRY%g", "queueId": "0"}
    assert send(parts, command(**retry, reconsumeTimes="1")).topic == "%RETRY%g"
    dead = send(parts, command(**{**retry, "queueId": "3"}, reconsumeTimes="2"))
    assert (dead.topic, dead.queue_id) == ("%DLQ%g", 0)
    # The client's own limit counts when it sends one.
    request = command(**retry, reconsumeTimes="2", maxReconsumeTimes="5")
    assert send(parts, request).topic == "%RETRY%g"
    request.version = 100
    assert send(parts, request).topic == "%DLQ%g"


def test_one_way_send_waits_for_nobody() -> None:
    parts = leader()
    connection = ListConnection()
    parts.sends.send(connection, command(flag=2))  # type: ignore[arg-type]
    parts.turn.end()
    parts.proposals.committed(1)
    assert connection.commands == []


def answered(parts: Parts, *requests: RemotingCommand) -> list[int]:
    """Which of some sends are answered as soon as they are stored here."""
    connection = ListConnection()
    for number, request in enumerate(requests):
        request.opaque = number
        parts.sends.send(connection, request)  # type: ignore[arg-type]
    parts.turn.end()
    parts.proposals.committed_here(len(parts.store.messages))
    early = [command.opaque for command in connection.take()]
    assert not parts.proposals.is_empty
    parts.proposals.committed(len(parts.store.messages))
    late = [command.opaque for command in connection.take()]
    assert sorted(early + late) == list(range(len(requests)))
    assert parts.proposals.is_empty
    return early


def test_only_sends_that_say_so_do_not_wait_for_slaves() -> None:
    batch = encode_batch([(0, b"a", b""), (0, b"b", b"")])
    requests = [
        command(),
        command(properties="WAIT\x01true\x02"),
        command(properties="A\x01b\x02WAIT\x01false\x02"),
        command(properties="WAIT\x01FALSE"),
        command(properties="WAIT\x01x\x02DELAY\x012"),
        command(properties="MYWAIT\x01false"),
        command(batch, batch="true", properties="WAIT\x01false"),
        command(batch, batch="true"),
    ]
    parts = leader(brokerRole="SYNC_MASTER")
    assert answered(parts, *requests) == [2, 3, 4, 6]
    assert answered(leader(), *requests) == []


def test_send_that_waits_for_no_slave_fails_as_the_others_do() -> None:
    parts = leader(brokerRole="SYNC_MASTER")
    connection = ListConnection()
    for _ in range(2):
        for text in ("WAIT\x01false", ""):
            parts.sends.send(connection, command(properties=text))  # type: ignore[arg-type]
        parts.turn.end()
        assert len(parts.store.messages) in (2, 4)
        parts.now_ms += 10_000
        parts.proposals.expire()
        assert [answer.code for answer in connection.take()] == [1, 1]
    parts.sends.send(connection, command(properties="WAIT\x01false"))  # type: ignore[arg-type]
    parts.turn.end()
    parts.proposals.fail_all(errors.ServiceUnavailableError("lost"))
    assert [answer.code for answer in connection.take()] == [14]
    assert (parts.proposals.is_empty, parts.proposals.count, parts.proposals.bytes) == (True, 0, 0)


def quick_frames(count: int, topic: str = "T", flag: int = 0, sys_flag: int = 0) -> list[bytes]:
    """Frames of SEND_MESSAGE_V2 as they are cut from a chunk."""
    fields = {
        "a": "pg", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": str(sys_flag),
        "g": "17", "h": "0", "i": "KEYS\x01k\x02WAIT\x01true",
    }  # fmt: skip
    return [
        encode(RemotingCommand(code=310, opaque=opaque, flag=flag, ext_fields=fields))[4:]
        for opaque in range(count)
    ]


def send_quick(parts: Parts, connection: ListConnection, frames: list[bytes]) -> int:
    return parts.sends.send_quick(connection, frames)  # type: ignore[arg-type]


def open_topic(parts: Parts) -> None:
    """The first send makes the topic, which changes the table; the second finds it as it stays."""
    for _ in range(2):
        send(parts, command())
    parts.proposals.committed(100)


def test_quick_sends_are_taken_once_their_topic_is_open() -> None:
    parts, connection = leader(), ListConnection()
    frames = quick_frames(3)
    assert send_quick(parts, connection, frames) == 0
    open_topic(parts)
    assert send_quick(parts, connection, frames) == 3
    parts.turn.end()
    parts.proposals.committed(100)
    assert [answer.opaque for answer in connection.take()] == [0, 1, 2]
    assert parts.store.messages[-1].properties == b"KEYS\x01k\x02CLUSTER\x01DefaultCluster"
    assert parts.proposals.count == parts.proposals.bytes == 0


def test_quick_sends_are_counted_when_somebody_looks_and_when_topics_change() -> None:
    parts, connection = leader(), ListConnection()
    open_topic(parts)

    def count() -> int:
        data = parts.statistics.view("TOPIC_PUT_NUMS", "T", parts.now_ms)
        return 0 if data is None else data.stats_minute.sum

    before = count()
    send_quick(parts, connection, quick_frames(3))
    assert count() == before + 3
    assert count() == before + 3
    send_quick(parts, connection, quick_frames(2))
    parts.state.put_topic(TopicConfig("T", permission=4))
    assert send_quick(parts, connection, quick_frames(1)) == 0
    assert count() == before + 5


def test_quick_sends_of_one_way_have_no_answer() -> None:
    parts, connection = leader(), ListConnection()
    open_topic(parts)
    assert send_quick(parts, connection, quick_frames(2, flag=2)) == 2
    parts.turn.end()
    parts.proposals.committed(100)
    assert connection.take() == []
    assert len(parts.store.messages) == 4


def test_no_more_quick_sends_are_taken_than_may_wait() -> None:
    parts, connection = Parts(limits=Limits(3, 64 << 20, 2500)).lead(), ListConnection()
    open_topic(parts)
    assert send_quick(parts, connection, quick_frames(5)) == 3
    assert send_quick(parts, connection, quick_frames(5)) == 0
    with pytest.raises(errors.SystemBusyError):
        parts.sends.send(connection, decode(quick_frames(1)[0]))  # type: ignore[arg-type]


def test_quick_sends_are_left_to_the_long_road_when_sends_are_refused() -> None:
    parts, connection = leader(), ListConnection()
    open_topic(parts)
    parts.leadership.closed_because = "the disk is full"
    assert send_quick(parts, connection, quick_frames(1)) == 0


def test_quick_sends_to_a_topic_that_was_changed_are_checked_again() -> None:
    parts, connection = leader(), ListConnection()
    open_topic(parts)
    assert send_quick(parts, connection, quick_frames(1)) == 1
    parts.state.put_topic(TopicConfig("T", permission=4))
    assert send_quick(parts, connection, quick_frames(1)) == 0


@pytest.mark.parametrize("bit", [0x40, 0x80])
def test_a_message_that_says_that_it_holds_several_is_refused(bit: int) -> None:
    """Java's consumers would take its body apart, whoever made it."""
    parts, connection = leader(), ListConnection()
    open_topic(parts)
    batch = decode(quick_frames(1, sys_flag=bit)[0])
    batch.code = int(RequestCode.SEND_BATCH_MESSAGE)
    for request in (
        command(sysFlag=str(bit | 1)),
        command(sysFlag=str(bit), topic="%RETRY%g", queueId="0"),
        command(sysFlag=str(bit), properties="DELAY\x013"),
        batch,
    ):
        with pytest.raises(errors.IllegalMessageError, match=f"has bits of {0xC0}"):
            send(parts, request)
    # The quick road leaves it, and what comes behind it, to the long one.
    frames = [*quick_frames(2), *quick_frames(1, sys_flag=bit), *quick_frames(1)]
    assert send_quick(parts, connection, frames) == 2
    parts.turn.end()
    assert [message.sys_flag for message in parts.store.messages] == [1, 1, 0, 0]
