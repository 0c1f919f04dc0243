"""Light queues: one message in several queues, whoever leads, and however often queues are made."""

import shutil
from pathlib import Path

import pytest

from ledgermq.commitlog import DamagedFileError, MessageIllegalError, light_places, named_queues
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.protocol.properties import PROPERTIES_BYTES_MAX, decode_properties
from ledgermq.protocol.record import decode_record
from ledgermq.protocol.sysflag import TRANSACTION_PREPARED
from tests.unit.commitlog.single_member import START_MS, Broker, clean, message
from tests.unit.commitlog.test_plain_store import Plain

HOUR_MS = 3_600_000
A, B = "%LMQ%a", "%LMQ%b"


def broker_on(root, **settings):
    return Broker(root, has_light_queues=True, **settings)


@pytest.fixture
def broker(tmp_path):
    broker = broker_on(tmp_path).lead()
    yield broker
    broker.close()


def light(body, *names, properties=b"TAGS\x01T", **fields):
    """A message for some light queues."""
    named = b"INNER_MULTI_DISPATCH\x01" + ",".join(names).encode()
    return message(body, properties=properties + b"\x02" + named, **fields)


def bodies(broker, topic, offset=None):
    start = broker.store.min_offset(topic, 0) if offset is None else offset
    result = broker.pull(topic, offset=start)
    return [decode_record(part).body for part in result.parts]


def files(root, topic):
    folder = Path(root) / "consumequeue" / topic / "0"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_message_is_in_its_queue_and_in_each_that_it_names(broker):
    arrivals = []
    broker.store.on_dispatched(arrivals.extend)
    broker.send(light(b"1", A, B, queue_id=3), light(b"2", B))
    assert bodies(broker, A) == [b"1"]
    assert bodies(broker, B) == [b"1", b"2"]
    result = broker.pull(queue_id=3)
    properties = decode_properties(decode_record(result.parts[0]).properties)
    assert properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
    assert properties["TAGS"] == "T"
    own = broker.store.queue_units("TopicTest", 3, 0, 1)
    assert broker.store.queue_units(A, 0, 0, 9) == own
    code = own[0][2]
    assert arrivals == [
        ("TopicTest", 3, 1, code),
        (A, 0, 1, code),
        (B, 0, 1, code),
        ("TopicTest", 0, 1, code),
        (B, 0, 2, code),
    ]
    assert broker.pull(B, matcher=lambda found: found != code).parts == []


def test_offsets_in_light_queues_go_on_with_the_next_leader(broker):
    broker.send(light(b"1", A), light(b"2", A, B))
    broker.store.resign()
    broker.lead(2)
    broker.send(light(b"3", B, A))
    assert bodies(broker, A) == [b"1", b"2", b"3"]
    assert bodies(broker, B) == [b"2", b"3"]
    assert bodies(broker, A, offset=2) == [b"3"]


def test_follower_makes_the_same_units_from_the_log_alone(broker):
    """The leader's rows are dropped, so what follows is decoded from the log."""
    broker.send(light(b"1", A), commit=False)
    broker.store.resign()
    broker.commit()
    broker.lead(2)
    broker.send(light(b"2", A))
    assert bodies(broker, A) == [b"1", b"2"]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["", A, "TopicTest", None])
def test_queues_are_made_again_byte_for_byte(tmp_path, is_clean, lost):
    broker = broker_on(tmp_path, queue_segment_bytes=200).lead()
    for n in range(25):
        broker.send(light(b"%d" % n, A, B) if n % 3 else light(b"%d" % n, B))
    broker.store.flush()
    before = {topic: files(tmp_path, topic) for topic in ("TopicTest", A, B)}
    assert len(before[B]) == 3
    broker.close() if is_clean else broker.kill()
    if lost is not None:
        shutil.rmtree(tmp_path / "consumequeue" / lost)
    # Offsets are in the records: what this member's settings are does not matter.
    again = Broker(tmp_path, queue_segment_bytes=200)
    assert {topic: files(tmp_path, topic) for topic in ("TopicTest", A, B)} == before
    assert len(bodies(again, B)) == 25
    again.close()


def test_retention_drops_units_of_light_queues(tmp_path):
    broker = broker_on(tmp_path, segment_bytes=8192, queue_segment_bytes=200).lead()
    for n in range(60):
        # The last one of A is old, those of B go on.
        broker.send(light(b"x" * 700, *([A, B] if n < 10 else [B])))
        broker.now_ms += HOUR_MS
    broker.store.flush()
    assert clean(broker.store, START_MS + 102 * HOUR_MS, 4, 10).drop_before > 0
    assert broker.store.min_offset(A, 0) == broker.store.max_offset(A, 0) == 10
    low = broker.store.min_offset(B, 0)
    assert 10 < low < 60
    assert broker.pull(B, offset=low).status.name == "FOUND"
    assert broker.pull(B, offset=0).next_begin_offset == low
    broker.kill()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "dispatch.checkpoint").unlink(missing_ok=True)
    again = broker_on(tmp_path, segment_bytes=8192, queue_segment_bytes=200)
    assert (again.store.min_offset(B, 0), again.store.max_offset(B, 0)) == (low, 60)
    # The records of A are gone, its numbers are not: the log tells where queues go on.
    again.lead()
    assert again.send(light(b"late", A, B))[0].queue_offset == 60
    assert bodies(again, A) == [b"late"]
    assert again.store.max_offset(A, 0) == 11
    again.close()


def test_nobody_but_the_leader_writes_offsets(broker):
    forged = b"INNER_MULTI_QUEUE_OFFSET\x017,9\x02K\x01V"
    broker.send(light(b"1", A, B, properties=forged), message(properties=forged))
    properties = decode_properties(decode_record(broker.pull().parts[0]).properties)
    assert (properties["INNER_MULTI_QUEUE_OFFSET"], properties["K"]) == ("0,0", "V")
    properties = decode_properties(decode_record(broker.pull(offset=1).parts[0]).properties)
    assert properties == {"K": "V"}
    assert broker.store.max_offset(A, 0) == 1


def test_nothing_is_put_into_light_queues_while_they_are_off(tmp_path):
    broker = Broker(tmp_path).lead()
    broker.send(light(b"1", A))
    properties = decode_properties(decode_record(broker.pull().parts[0]).properties)
    assert properties == {"INNER_MULTI_DISPATCH": A, "TAGS": "T"}
    assert A not in broker.store.topics()
    broker.close()


@pytest.mark.parametrize(
    ("topic", "sys_flag"),
    [
        ("SCHEDULE_TOPIC_XXXX", 0),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0),
        ("TRANS_CHECK_MAX_TIME_TOPIC", 0),
        ("%RETRY%group", 0),
        ("%DLQ%group", 0),
        ("TopicTest", TRANSACTION_PREPARED),
    ],
)
def test_message_that_waits_or_comes_back_is_in_no_light_queue(broker, topic, sys_flag):
    """It has the properties of the message, those of the leader that stored it first among them."""
    before = b"INNER_MULTI_QUEUE_OFFSET\x010"
    broker.send(light(b"1", A))
    broker.send(light(b"2", A, topic=topic, sys_flag=sys_flag, properties=before))
    assert bodies(broker, A) == [b"1"]


def test_messages_sent_to_a_light_queue_and_put_into_it_share_its_numbers(broker):
    broker.send(
        light(b"1", A), message(b"2", topic=A), light(b"3", A, A), light(b"4", B, A, topic=A)
    )
    broker.send(message(b"5", topic=A), light(b"6", A))
    assert bodies(broker, A) == [b"%d" % n for n in range(1, 7)]
    assert bodies(broker, B) == [b"4"]
    assert bodies(broker, A, offset=3) == [b"4", b"5", b"6"]


def test_offsets_count_for_the_size_of_the_properties(broker):
    room = PROPERTIES_BYTES_MAX - len(light(b"", A).properties)
    fits = b"TAGS\x01T\x02K\x01" + b"x" * (room - len("\x02K\x01\x02INNER_MULTI_QUEUE_OFFSET\x010"))
    assert len(broker.send(light(b"1", A, properties=fits))) == 1
    with pytest.raises(MessageIllegalError) as caught:
        broker.send(light(b"2", A, properties=fits + b"x"))
    assert f"{PROPERTIES_BYTES_MAX + 1}" in str(caught.value)
    broker.send(light(b"3", A))
    assert bodies(broker, A) == [b"1", b"3"]


def test_offset_that_does_not_follow_is_left_out(broker):
    """As in the log of a Java broker of 4.9.3, which counts from 0 again after its restart."""
    row_maker = broker.store._row_maker
    broker.send(light(b"1", A))
    entries = broker.ledger_store.read(broker.ledger_store.last_index, 1 << 20)
    row = row_maker.rows_of(entries, entries.first_index, entries.last_index + 1)[0]
    assert [(queue.topic, offset) for queue, offset in row.light] == [(A, 0)]
    queue = row.light[0][0]
    for offset in (0, 5):
        again = row._replace(queue=None, light=((queue, offset),), unit=QUEUE_UNIT.pack(1, 2, 3))
        broker.store._dispatcher._apply([again], entries.last_index, None)
    assert bodies(broker, A) == [b"1"]
    assert broker.store.max_offset(A, 0) == 1


@pytest.mark.parametrize("byte", [6, 11])
def test_flipped_bit_in_a_light_queue_is_found(broker, byte):
    broker.send(light(b"1", A, B))
    broker.store.flush()
    scrub = broker.store.make_scrub()
    while scrub.step(1 << 20):
        pass
    path = next((Path(broker.root) / "consumequeue" / A / "0").iterdir())
    with path.open("r+b") as file:
        file.seek(byte)
        flipped = file.read(1)[0] ^ 1
        file.seek(byte)
        file.write(bytes([flipped]))
    told = []
    broker.store.on_damage(told.append)
    with pytest.raises(DamagedFileError):
        broker.pull(A)
    assert told
    assert bodies(broker, B) == [b"1"]
    if byte >= 8:
        with pytest.raises(DamagedFileError):
            broker.store.make_scrub().step(1 << 20)


def test_light_queues_are_counted(broker):
    broker.send(light(b"1", A, B))
    assert broker.store.count_light_queues() == 2
    broker.store.delete_topic(A)
    assert broker.store.count_light_queues() == 1
    broker.send(light(b"2", A))
    assert bodies(broker, A) == [b"2"]
    assert (broker.store.min_offset(A, 0), broker.store.count_light_queues()) == (1, 2)


def test_names_are_checked():
    assert named_queues(f"{A},{B}") == [A, B]
    for text in ("", "a", f"{A},", f"{A},b", f"{A}, {B}", "%LMQ%/../x", "%LMQ%" + "x" * 200):
        assert named_queues(text) is None, text


@pytest.mark.parametrize(
    "numbers", ["", "1", "1,2,3", "1,-2", "1,x", "1,", "1,²", "1," + "9" * 20, "1 ,2"]
)
def test_numbers_that_are_none_name_no_place(numbers):
    named = f"INNER_MULTI_DISPATCH\x01{A},{B}\x02INNER_MULTI_QUEUE_OFFSET\x01"
    assert light_places("T", 0, f"{named}1,2".encode()) == [(A, 1), (B, 2)]
    assert light_places("T", 0, (named + numbers).encode()) == []
    assert light_places("T", 0, f"{named}1,{1 << 58}".encode()) == [(A, 1)]


def test_plain_log_fills_light_queues_and_makes_them_again(tmp_path):
    plain = Plain(tmp_path, has_light_queues=True)
    plain.open()
    for n in range(30):
        plain.append([light(b"%d" % n, A, B) if n % 2 else light(b"%d" % n, B, queue_id=1)])
        plain.confirm()
    assert plain.read(A) == [str(n) for n in range(1, 30, 2)]
    assert plain.read(B) == [str(n) for n in range(30)]
    plain.store.flush()
    before = {topic: files(tmp_path, topic) for topic in ("TopicTest", A, B)}
    plain.close()
    shutil.rmtree(tmp_path / "consumequeue")
    again = Plain(tmp_path)
    again.open()
    assert {topic: files(tmp_path, topic) for topic in ("TopicTest", A, B)} == before
    assert again.read(B) == [str(n) for n in range(30)]
    scrub = again.store.make_scrub()
    while scrub.step(1 << 20):
        pass
    # A unit that leads to another record of the queue is found by the record's own word.
    path = next((tmp_path / "consumequeue" / A / "0").iterdir())
    content = bytearray(path.read_bytes())
    content[:20] = content[20:40]
    again.close()
    path.write_bytes(content)
    damaged = Plain(tmp_path)
    damaged.open()
    with pytest.raises(DamagedFileError):
        damaged.read(A)
    damaged.close()
