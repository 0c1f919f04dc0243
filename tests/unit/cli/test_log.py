"""`ledgermq log dump|verify|stat`: a good store is good, each defect is named with its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from tests.unit.cli.stores import (
    QUEUE_SEGMENT_BYTES,
    SEGMENT_BYTES,
    data_files,
    flip,
    ledger,
    make_store,
    overwrite,
    position_of,
    without_checksums,
)
from tests.unit.commitlog.single_member import Broker, message

INDEX_UNIT_BYTES = 32
UNIT_BYTES = 20
# Entries beside the messages: one opens the term, one tells the queues' ends in each segment.
LAST_INDEX = 304


@pytest.fixture(scope="module")
def good_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About five data segments and, with two queues of 150 messages, two files a queue."""
    return make_store(tmp_path_factory.mktemp("good") / "store", 300, body_bytes=800)


@pytest.fixture
def store(good_store: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(good_store, tmp_path / "store")


def verify(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, str]:
    code = main(["log", "verify", *map(str, paths)])
    return code, capsys.readouterr().out


def queue_file(store: Path, start: int = 0, queue_id: int = 0) -> Path:
    return store / "consumequeue" / "Orders" / str(queue_id) / f"{start:020d}"


def index_file(store: Path, start: int = 0) -> Path:
    return ledger(store) / "index" / f"{start:020d}"


def test_a_good_store_is_good(good_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = verify(capsys, good_store)
    assert code == 0, text
    assert "2 queues with 300 messages, 0 entries without checksums" in text
    assert text.endswith("good\n")
    assert "note" not in text


def test_verify_takes_a_root_a_ledger_directory_or_the_directory_above(
    good_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (good_store, ledger(good_store), good_store.parent):
        assert verify(capsys, path)[0] == 0


def test_a_directory_without_a_store_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        assert main(["log", "verify", str(path)]) == 1
        assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("action", ["verify", "dump", "stat"])
def test_empty_files_are_no_crash(
    store: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    data_files(store)[-1].write_bytes(b"")
    index_file(store).write_bytes(b"")
    queue_file(store).write_bytes(b"")
    assert main(["log", action, str(store)]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


def test_a_flipped_byte_of_a_body_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, offset = position_of(store, 123)
    flip(path, offset + 400)
    code, text = verify(capsys, store)
    assert code == 1
    position = int(path.name) + offset
    assert f"{path}: entry 123 at position {position}: body_crc is" in text
    assert "the log ends at 122" in text


@pytest.mark.parametrize(
    "at", [0, 3, 4, 7, 8, 15, 16, 23, 24, 31, 32, 36, 39, 40, 43, 44, 47], ids=str
)
def test_any_flipped_byte_of_a_head_is_found(
    store: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    path, offset = position_of(store, 200)
    flip(path, offset + at)
    code, text = verify(capsys, store)
    assert code == 1
    assert "the log ends at 199" in text
    assert str(path) in text and str(offset) in text


def test_a_missing_segment_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = data_files(store)[2]
    missing.unlink()
    code, text = verify(capsys, store)
    assert code == 1
    assert f"{missing.name} is missing" in text


def test_a_missing_last_segment_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last, _ = position_of(store, LAST_INDEX)
    for path in data_files(store):
        if path >= last:
            path.unlink()
    code, text = verify(capsys, store)
    assert code == 1
    assert f"the checkpoint says {LAST_INDEX} is committed, the log ends at" in text
    assert f"{last} is missing" in text


def test_a_zeroed_page_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, offset = position_of(store, 40)
    overwrite(path, offset, bytes(4096))
    code, text = verify(capsys, store)
    assert code == 1
    assert f"the log ends at 39: {path} at {offset} holds nothing" in text


def test_a_torn_last_entry_is_told_and_no_defect(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint is behind it: it was never acknowledged."""
    checkpoint = ledger(store) / "checkpoint"
    checkpoint.write_text(
        checkpoint.read_text().replace(f"Index={LAST_INDEX}", f"Index={LAST_INDEX - 1}")
    )
    path, offset = position_of(store, LAST_INDEX)
    flip(path, offset + 400)
    code, text = verify(capsys, store)
    assert code == 0, text
    assert "note: " in text and f"entry {LAST_INDEX}" in text


def test_a_store_without_a_checkpoint_says_so(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ledger(store) / "checkpoint").unlink()
    code, text = verify(capsys, store)
    assert code == 0
    assert "no checkpoint" in text


def test_a_wrong_index_unit_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(index_file(store), 77 * INDEX_UNIT_BYTES + 11)
    code, text = verify(capsys, store)
    assert code == 1
    assert f"index unit of entry 77: {index_file(store)} at {77 * INDEX_UNIT_BYTES} says" in text


def test_a_missing_index_file_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index_file(store).unlink()
    code, text = verify(capsys, store)
    assert code == 1
    assert "index unit of entry 0: a missing file, position 0" in text


def delayed_store(root: Path) -> Path:
    """Delayed messages in two queues of their topic, delivered ones, and others."""
    topic = "SCHEDULE_TOPIC_XXXX"
    broker = Broker(root, segment_bytes=SEGMENT_BYTES, delays_ms=(1000, 5000)).lead()
    for number in range(20):
        broker.now_ms += 100
        for level in (1, 2):
            waiting = b"TAGS\x01red\x02DELAY\x01%d\x02REAL_TOPIC\x01T" % level
            broker.send(message(b"later %d" % number, topic, level - 1, waiting))
        broker.send(message(b"now", "Orders", 0, b"TAGS\x01red\x02DELAY\x011"))
    # An operator may put a message there, without a level.
    broker.send(message(b"strange", topic, 0, b"TAGS\x01red\x02DELAY\x01x"))
    broker.close()
    return root


def schedule_file(store: Path, queue_id: int) -> Path:
    return store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(queue_id) / f"{0:020d}"


def test_a_store_with_delayed_messages_is_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There a unit has the time of delivery in the place of a hash of tags."""
    code, text = verify(capsys, delayed_store(tmp_path / "store"))
    assert code == 0, text
    assert "3 queues with 61 messages" in text
    assert text.endswith("good\n") and "note" not in text


@pytest.mark.parametrize(
    ("queue_id", "offset", "value"),
    [
        # Earlier than it came, and later than any delay.
        (1, 3, 1_600_000_000_000),
        (1, 19, 2**62),
        # The hash of "red", and nothing.
        (0, 7, 112_785),
        (0, 0, 0),
        # The message without a level.
        (0, 20, 112_786),
        (0, 20, 1_700_000_001_000),
    ],
)
def test_a_wrong_time_or_hash_of_a_delayed_message_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], queue_id: int, offset: int, value: int
) -> None:
    store = delayed_store(tmp_path / "store")
    file = schedule_file(store, queue_id)
    overwrite(file, offset * UNIT_BYTES + 12, value.to_bytes(8, "big"))
    code, text = verify(capsys, store)
    assert code == 1
    assert f"queue SCHEDULE_TOPIC_XXXX-{queue_id} offset {offset}: {file}" in text
    assert text.count("offset") >= 1 and str(value) in text


def test_a_wrong_place_of_a_delayed_message_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = delayed_store(tmp_path / "store")
    for at in (7, 11):
        flip(schedule_file(store, 1), 5 * UNIT_BYTES + at)
        code, text = verify(capsys, store)
        assert code == 1 and "queue SCHEDULE_TOPIC_XXXX-1 offset 5:" in text
        flip(schedule_file(store, 1), 5 * UNIT_BYTES + at)


def test_the_hash_of_a_delivered_message_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps its level, and stands in a queue of its own topic."""
    store = delayed_store(tmp_path / "store")
    overwrite(queue_file(store), 4 * UNIT_BYTES + 12, (1_700_000_001_000).to_bytes(8, "big"))
    code, text = verify(capsys, store)
    assert code == 1 and "queue Orders-0 offset 4:" in text and "tags code 112785" in text


def test_different_delays_of_a_level_are_told_and_no_defect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = delayed_store(tmp_path / "store")
    broker = Broker(store, segment_bytes=SEGMENT_BYTES, delays_ms=(1000, 7000)).lead()
    broker.send(message(b"later", "SCHEDULE_TOPIC_XXXX", 1, b"DELAY\x012"))
    broker.close()
    code, text = verify(capsys, store)
    assert code == 0, text
    assert "queue SCHEDULE_TOPIC_XXXX-1 has 2 delays: 5000 ms from offset 0 on, 7000 ms" in text
    assert "7000 ms from offset 20 on (messageDelayLevel was changed" in text


def test_a_wrong_queue_unit_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(queue_file(store), 33 * UNIT_BYTES + 5)
    code, text = verify(capsys, store)
    assert code == 1
    assert f"queue Orders-0 offset 33: {queue_file(store)} at {33 * UNIT_BYTES} says" in text


def test_a_hole_in_a_queue_is_found(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overwrite(queue_file(store), 20 * UNIT_BYTES, bytes(2 * UNIT_BYTES))
    code, text = verify(capsys, store)
    assert code == 1
    assert "queue Orders-0 has no unit for offset 20, but units behind it" in text


def test_a_missing_file_in_the_middle_of_a_queue_is_found(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first file may be gone by retention; one behind it may not."""
    second = queue_file(store, QUEUE_SEGMENT_BYTES)
    third = queue_file(store, 2 * QUEUE_SEGMENT_BYTES)
    third.write_bytes(second.read_bytes())
    second.unlink()
    code, text = verify(capsys, store)
    assert code == 1
    assert "queue Orders-0 has no file for offset 100, but units behind it" in text


def test_a_queue_that_ends_early_is_told_and_no_defect(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is made from the log at the next start."""
    overwrite(queue_file(store, QUEUE_SEGMENT_BYTES), 0, bytes(QUEUE_SEGMENT_BYTES))
    shutil.rmtree(queue_file(store, queue_id=1).parent)
    code, text = verify(capsys, store)
    assert code == 0, text
    assert "note: queue Orders-0 ends before offset 100, the log at 149" in text
    assert "note: queue Orders-1 has no files" in text


def test_a_unit_that_the_log_does_not_know_is_found(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    units = queue_file(store).read_bytes()[:UNIT_BYTES]
    overwrite(queue_file(store, QUEUE_SEGMENT_BYTES), 50 * UNIT_BYTES, units)
    code, text = verify(capsys, store)
    assert code == 1
    assert "queue Orders-0 offset 150" in text and "the log has no such message" in text


def test_a_queue_file_of_no_whole_units_is_found(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = queue_file(store, QUEUE_SEGMENT_BYTES)
    last.write_bytes(last.read_bytes()[:-7])
    code, text = verify(capsys, store)
    assert code == 1
    assert f"{last} has 1993 bytes" in text


def test_entries_of_a_java_leader_are_counted(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_checksums(store)
    code, text = verify(capsys, store)
    assert code == 0, text
    assert f"{LAST_INDEX + 1} entries without checksums" in text


def test_replicas_that_differ_at_one_byte_are_found(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without checksums only the other replica can tell."""
    without_checksums(store)
    other = shutil.copytree(store, tmp_path / "other")
    assert verify(capsys, store, other)[0] == 0
    path, offset = position_of(other, 250)
    flip(path, offset + 300)
    code, text = verify(capsys, store, other)
    assert code == 1
    assert f"{path} at {offset + 300} differs from {position_of(store, 250)[0]} at" in text


def test_replicas_are_compared_as_far_as_both_have_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = make_store(tmp_path / "one", 50)
    two = shutil.copytree(one, tmp_path / "two")
    checkpoint = ledger(two) / "checkpoint"
    checkpoint.write_text(checkpoint.read_text().replace("Index=50", "Index=30"))
    path, offset = position_of(two, 30)
    code, text = verify(capsys, one, two)
    assert code == 0, text
    head_bytes = 48
    end = int(path.name) + position_of(two, 31)[1]
    assert offset + head_bytes < end
    assert f"replicas compared over positions 0..{end}: identical" in text


def test_verify_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", "--json", str(store)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["good"] is True
    assert document["stores"][0]["committed_index"] == LAST_INDEX
    flip(queue_file(store), 0)
    assert main(["log", "verify", "--json", str(store)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["good"] is False
    assert document["stores"][0]["defect_count"] == len(document["stores"][0]["defects"]) == 1


def test_many_defects_are_told_up_to_a_number_and_counted(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overwrite(queue_file(store), 0, b"\x01" * QUEUE_SEGMENT_BYTES)
    overwrite(queue_file(store, queue_id=1), 0, b"\x01" * QUEUE_SEGMENT_BYTES)
    code, text = verify(capsys, store)
    assert code == 1
    assert text.count("DEFECT:") == 100
    assert "and 100 more defects" in text


def test_dump_prints_entries_as_json_lines(
    good_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["log", "dump", "--from-index", "40", "--count", "3", "--bodies", str(good_store)]
    assert main(words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["index"] for line in lines] == [40, 41, 42]
    record = lines[0]["record"]
    assert (record["topic"], record["queue_id"], record["queue_offset"]) == ("Orders", 1, 19)
    assert record["properties"]["TAGS"] == "red"
    assert record["body"].startswith("39:bbb")
    assert record["physical_offset"] == lines[0]["position"] + 48


def test_dump_of_a_damaged_store_prints_what_is_good_and_fails(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, offset = position_of(store, 12)
    flip(path, offset + 200)
    assert main(["log", "dump", str(store)]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 12
    assert "entry 12" in captured.err


def test_stat_counts_by_topic(good_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "stat", str(good_store)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "Orders" in line)
    assert line.split()[1:3] == ["300", "records"]
    assert main(["log", "stat", "--json", str(good_store)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document[0]["topics"]["Orders"][0] == 300
    assert SEGMENT_BYTES < document[0]["topics"]["Orders"][1]


def test_light_queues_are_checked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = Broker(tmp_path, has_light_queues=True).lead()
    for n in range(3):
        named = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"
        broker.send(message(b"%d" % n, queue_id=1, properties=named))
    broker.close()
    code, text = verify(capsys, tmp_path)
    assert (code, "3 queues with 9 messages" in text) == (0, True), text
    path = next((tmp_path / "consumequeue" / "%LMQ%b" / "0").iterdir())
    flip(path, 2 * UNIT_BYTES + 7)
    code, text = verify(capsys, tmp_path)
    assert code == 1
    assert "queue %LMQ%b-0 offset 2" in text
