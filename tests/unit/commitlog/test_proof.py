"""Reads serve only what was written: by the checksum, and by what a record says of its place."""

import pytest

from ledgermq.commitlog import DamagedFileError
from ledgermq.commitlog.index_file import IndexFile
from ledgermq.dledger.store.errors import CorruptStoreError
from tests.unit.commitlog.single_member import START_MS, Broker, clean, message

HOUR_MS = 3_600_000


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path, queue_segment_bytes=2000).lead()
    broker.send(*[message(b"%d" % i, properties=b"KEYS\x01k%d" % i) for i in range(20)])
    # The last writes are read from memory.
    for _ in range(16):
        broker.send(message(b"later", topic="Other"))
    # What is read is in the files, then.
    broker.store.flush()
    return broker


def flip(broker, path, offset):
    file = broker.file_system.open(str(path))
    file.write(offset, bytes([file.read(offset, 1)[0] ^ 4]))


def write_at(broker, path, offset, data):
    broker.file_system.open(str(path)).write(offset, data)


def point_at(broker, path, queue_offset, place):
    write_at(broker, path, 20 * queue_offset, place.to_bytes(8, "big"))


def queue_path(tmp_path):
    return tmp_path / "consumequeue" / "TopicTest" / "0" / f"{0:020d}"


@pytest.mark.parametrize("offset", [100, 300])
def test_a_flipped_record_is_not_served_and_blamed_on_the_log(broker, tmp_path, offset):
    told = []
    broker.store.on_damage(told.append)
    position = broker.ledger_store.position_at(5)
    flip(broker, tmp_path / "dledger-n0" / "data" / f"{0:020d}", position + 48 + offset % 90)
    good = broker.store.get_message("TopicTest", 0, 0, 2, None)
    assert good.message_count == 2
    with pytest.raises(DamagedFileError) as caught:
        broker.store.get_message("TopicTest", 0, 0, 32, None)
    assert caught.value.file == "log"
    assert not caught.value.is_derived
    assert told == [caught.value]


@pytest.mark.parametrize("offset", [4, 7, 11])
def test_a_flipped_unit_is_not_followed_and_blamed_on_the_queue(broker, tmp_path, offset):
    flip(broker, queue_path(tmp_path), 20 * 3 + offset)
    with pytest.raises(DamagedFileError) as caught:
        broker.store.get_message("TopicTest", 0, 0, 32, None)
    assert caught.value.file == "consume queue"
    assert caught.value.is_derived


@pytest.mark.parametrize("place", [0, 47])
def test_a_unit_that_points_before_the_first_record_is_no_removed_one(broker, tmp_path, place):
    point_at(broker, queue_path(tmp_path), 3, place)
    for offset in (0, 3):
        with pytest.raises(DamagedFileError) as caught:
            broker.store.get_message("TopicTest", 0, offset, 32, None)
        assert "unit 3" in str(caught.value)


def test_a_unit_that_points_into_what_retention_dropped_is_no_removed_one(tmp_path):
    broker = Broker(tmp_path, segment_bytes=4096).lead()
    broker.send(*[message(b"x" * 1000) for _ in range(12)])
    first_position = 8192
    broker.ledger_store.drop_before(first_position)
    queue = broker.store._queues.find("TopicTest", 0)
    queue.drop_before(first_position)
    offset = queue.min_offset + 1
    assert broker.pull(offset=offset).message_count > 0
    broker.store.flush()
    path = next((tmp_path / "consumequeue" / "TopicTest" / "0").iterdir())
    for place in (0, 4144, first_position):
        point_at(broker, path, offset, place)
        with pytest.raises(DamagedFileError) as caught:
            broker.pull(offset=offset)
        assert f"unit {offset}" in str(caught.value)
    broker.close()


def test_the_scrub_finds_what_no_reader_would_see(broker, tmp_path):
    scrub = broker.store.make_scrub()
    while scrub.step(500):
        pass
    assert scrub.round_count == 1
    flip(broker, queue_path(tmp_path), 20 * 3 + 19)
    with pytest.raises(DamagedFileError) as caught:
        while scrub.step(500):
            pass
    assert "unit 3" in str(caught.value)


def test_the_scrub_takes_a_delay_that_was_another_one_when_a_message_came(tmp_path):
    """Whoever changed messageDelayLevel would else see a sound store repaired."""
    topic, path = "SCHEDULE_TOPIC_XXXX", tmp_path / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "1"
    broker = Broker(tmp_path, delays_ms=(1000, 5000)).lead()
    waiting = message(b"x", topic, 1, b"TAGS\x01red\x02DELAY\x012")
    broker.send(*[waiting] * 5, message(b"x", topic, 1, b"TAGS\x01red"))
    broker.close()
    again = Broker(tmp_path, delays_ms=(1000, 7000)).lead()
    scrub = again.store.make_scrub()
    while scrub.step(500):
        pass
    assert scrub.round_count == 1
    # Before the message came, or never: that is no delay. Nor is it a hash of tags.
    for offset, code in ((2, START_MS - 1), (3, 2**63 - 1), (4, 5), (5, START_MS)):
        unit = again.store._queues.find(topic, 1).units(offset, 1)
        (file,) = path.iterdir()
        write_at(again, file, offset * 20 + 12, code.to_bytes(8, "big"))
        with pytest.raises(DamagedFileError, match=f"unit {offset} of"):
            again.store.make_scrub().step(1 << 20)
        write_at(again, file, offset * 20 + 12, unit[12:])
        again.store.make_scrub().step(1 << 20)
    again.close()


def test_a_round_of_the_scrub_ends_although_the_log_grows_with_every_step(broker):
    """A busy leader appended more between two steps than a round lacked: it never began again."""
    scrub = broker.store.make_scrub()
    for _ in range(60):
        scrub.step(500)
        broker.send(*[message(b"more") for _ in range(5)])
        if scrub.round_count:
            break
    assert scrub.round_count == 1


def many_keys(count):
    return b"KEYS\x01" + b" ".join(b"%d" % number for number in range(count))


@pytest.fixture
def crowded(tmp_path):
    """A message with thousands of keys between two usual ones, all in one slot of the index."""
    broker = Broker(tmp_path, index_slot_count=1, index_entry_count=20_000).lead()
    for properties in (b"KEYS\x01a", many_keys(5000), b"KEYS\x01b"):
        broker.send(message(properties=properties))
    broker.store.flush()
    return broker


def test_the_scrub_stops_and_goes_on_within_the_keys_of_a_record(crowded):
    scrub = crowded.store.make_scrub()
    steps = 0
    while scrub.step(1 << 20, lambda: False):
        steps += 1
    assert scrub.round_count == 1
    # 256 keys a step.
    assert 5000 / 256 <= steps <= 5000 / 256 + 3
    assert scrub.byte_count == crowded.ledger_store.end_position


@pytest.mark.parametrize("damaged", [1, 300, 2560, 4999, 5001])
def test_the_scrub_finds_a_lost_key_in_whatever_step_it_comes_to_it(crowded, tmp_path, damaged):
    """Entry 0 is none; the first message has one, the second those from 2 on."""
    (index,) = (tmp_path / "index").iterdir()
    flip(crowded, index, 40 + 4 + 20 * (damaged + 1) + 3)
    for has_time in (lambda: False, lambda: True):
        scrub = crowded.store.make_scrub()
        with pytest.raises(DamagedFileError) as caught:
            for _ in range(30):
                scrub.step(1 << 20, has_time)
        assert caught.value.file == "key index"


def test_work_of_the_scrub_grows_as_the_keys_of_a_record_do(crowded, monkeypatch):
    """A search for each key among all keys of its record took minutes of a broker's time."""
    read_count = 0
    read_entry = IndexFile._entry

    def counted(file, number):
        nonlocal read_count
        read_count += 1
        return read_entry(file, number)

    monkeypatch.setattr(IndexFile, "_entry", counted)
    scrub = crowded.store.make_scrub()
    while scrub.step(1 << 20):
        pass
    assert 5000 < read_count < 150 * 5000


def test_retention_between_two_steps_within_a_record_is_no_damage(tmp_path):
    broker = Broker(tmp_path, segment_bytes=32_768, index_slot_count=1, index_entry_count=6000)
    broker.lead()
    for number in range(4):
        broker.send(message(b"%d" % number, properties=many_keys(4000)))
        broker.now_ms += 24 * HOUR_MS
    scrub = broker.store.make_scrub()
    assert scrub.step(1 << 20, lambda: False) and scrub.step(1 << 20, lambda: False)
    broker.store.flush()
    assert clean(broker.store, broker.now_ms + 24 * HOUR_MS, 4, 10).drop_before
    assert broker.ledger_store.first_index >= 2
    while scrub.step(1 << 20, lambda: False):
        pass
    assert scrub.round_count == 1


def test_the_scrub_compares_index_units_and_keys(broker, tmp_path):
    scrub = broker.store.make_scrub()
    (index,) = (tmp_path / "index").iterdir()
    flip(broker, index, 40 + 400 + 20 * 7 + 11)
    with pytest.raises(DamagedFileError) as caught:
        scrub.step(1 << 20)
    assert caught.value.file == "key index"
    flip(broker, tmp_path / "dledger-n0" / "index" / f"{0:020d}", 32 * 4 + 31)
    with pytest.raises(CorruptStoreError):
        broker.store.make_scrub().step(1 << 20)


def test_after_a_discarded_checkpoint_everything_is_made_again(broker, tmp_path):
    broker.store.close()
    broker.store.checkpoints.discard()
    broker.ledger_store.close()
    again = Broker(tmp_path, queue_segment_bytes=2000)
    assert again.report.rebuilt_because
    assert again.pull(count_max=32).message_count == 20


def test_a_record_that_rotted_before_its_queue_is_made_again_is_damage_of_the_log(tmp_path):
    """Not a record that nobody understands: who stops for that stops at every start."""
    broker = Broker(tmp_path, segment_bytes=2048).lead()
    broker.send(*[message(b"%d" % i) for i in range(20)])
    body_length = broker.ledger_store.position_at(5) + 48 + 84
    broker.close()
    broker.store.checkpoints.discard()
    broker.ledger_store.close()
    flip(broker, tmp_path / "dledger-n0" / "data" / f"{0:020d}", body_length)
    again = Broker(tmp_path, segment_bytes=2048, open_store=False)
    with pytest.raises(CorruptStoreError, match="entry 5"):
        again.open()


def test_a_record_that_rotted_before_it_was_dispatched_is_damage_of_the_log(tmp_path):
    """Nor is its body handed over as it is now: of the broker's state a change would be missing."""
    broker = Broker(tmp_path, segment_bytes=2048).lead()
    broker.send(*[message(b"%d" % i) for i in range(20)])
    body = broker.ledger_store.position_at(5) + 48 + 88
    broker.kill()
    flip(broker, tmp_path / "dledger-n0" / "data" / f"{0:020d}", body)
    again = Broker(tmp_path, segment_bytes=2048, open_store=False)
    seen: list[bytes] = []
    again.store.watch_topic("T", lambda body, index: seen.append(body))
    with pytest.raises(CorruptStoreError, match="entry 5"):
        again.open()
    assert seen in ([], [b"%d" % i for i in range(5)])
