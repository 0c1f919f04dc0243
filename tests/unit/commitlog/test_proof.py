"""Reads serve only what was written: by the checksum, and by what a record says of its place."""

import pytest

from ledgermq.commitlog import DamagedFileError
from ledgermq.dledger.store.errors import CorruptStoreError
from tests.unit.commitlog.single_member import Broker, message


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path, queue_segment_bytes=2000).lead()
    broker.send(*[message(b"%d" % i, properties=b"KEYS\x01k%d" % i) for i in range(20)])
    return broker


def flip(broker, path, offset):
    for file in (broker.file_system.map(str(path)),):
        file.buffer[offset] ^= 4
        file.close()


def point_at(broker, path, queue_offset, place):
    file = broker.file_system.map(str(path))
    file.buffer[20 * queue_offset : 20 * queue_offset + 8] = place.to_bytes(8, "big")
    file.close()


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


def test_a_round_of_the_scrub_ends_although_the_log_grows_with_every_step(broker):
    """A busy leader appended more between two steps than a round lacked: it never began again."""
    scrub = broker.store.make_scrub()
    for _ in range(60):
        scrub.step(500)
        broker.send(*[message(b"more") for _ in range(5)])
        if scrub.round_count:
            break
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
    broker.store.discard_checkpoint()
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
    broker.store.discard_checkpoint()
    broker.ledger_store.close()
    flip(broker, tmp_path / "dledger-n0" / "data" / f"{0:020d}", body_length)
    again = Broker(tmp_path, segment_bytes=2048, open_store=False)
    with pytest.raises(CorruptStoreError, match="entry 5"):
        again.open()
