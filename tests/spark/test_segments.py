"""Segment files as a table: the rows of the broker, only what is committed, every defect named."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.spark import SparkSourceError
from tests.e2e.up_cluster import UpCluster
from tests.spark import direct
from tests.spark.log_files import (
    PREPARED,
    SEGMENT_BYTES,
    flip,
    make_record,
    write_ledger,
    write_plain,
)
from tests.spark.topics import send_numbered
from tests.waiting import wait_until

COUNT = 100
RECORDS = [make_record(("Orders", "Bills")[n % 3 == 0], n) for n in range(COUNT)]


def write_any(directory: Path, kind: str, committed_index: int = COUNT - 1) -> list[Path]:
    """Writes the records as one of the three kinds of logs."""
    if kind == "plain":
        return write_plain(directory, RECORDS)
    return write_ledger(
        directory / "dledger-n0",
        RECORDS,
        committed_index=committed_index,
        is_java=kind == "java ledger",
    )


def numbers(rows: list[dict[str, object]]) -> list[int]:
    """The numbers of the messages, in their order."""
    return [int(bytes(row["body"]).split(b":")[0]) for row in rows]  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["ledger", "java ledger", "plain"])
def test_all_kinds_of_logs_give_the_same_rows(tmp_path: Path, kind: str) -> None:
    assert len(write_any(tmp_path, kind)) > 4
    rows = direct.read_segments({"path": tmp_path, "brokerName": "a"})
    assert numbers(rows) == list(range(COUNT))
    row = rows[7]
    assert (row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]) == (
        "Orders", "a", 3, 1,
    )  # fmt: skip
    assert (row["tags"], row["keys"]) == ("B", "key-7")
    assert dict(row["properties"]) == {"TAGS": "B", "KEYS": "key-7"}
    assert int(row["storeTimestamp"].timestamp() * 1000) == 1_700_000_000_107


def test_topics_times_and_columns_select(tmp_path: Path) -> None:
    write_any(tmp_path, "ledger")
    options = {
        "path": tmp_path / "dledger-n0",
        "topics": "Bills",
        "startingTimestamp": 1_700_000_000_100 + 10,
        "endingTimestamp": 1_700_000_000_100 + 20,
        "columns": "body,tags",
    }
    rows = direct.read_segments(options)
    assert numbers(rows) == [12, 15, 18]
    assert set(rows[0]) == {"body", "tags"}


@pytest.mark.parametrize("committed_index", [0, 10, 50, COUNT - 1])
def test_only_what_is_committed_is_read(tmp_path: Path, committed_index: int) -> None:
    """Behind it anything may stand: a follower's tail may still be cut."""
    files = write_any(tmp_path, "ledger", committed_index)
    if committed_index < 50:
        flip(files[-1], 100)
    rows = direct.read_segments({"path": tmp_path})
    assert numbers(rows) == list(range(committed_index + 1))


def test_internal_records_are_no_rows(tmp_path: Path) -> None:
    records = [make_record("T", n, sys_flag=PREPARED if n % 2 else 0) for n in range(10)]
    write_ledger(tmp_path / "dledger-a", records, committed_index=9)
    assert numbers(direct.read_segments({"path": tmp_path})) == [0, 2, 4, 6, 8]


def zero_tail(files: list[Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:1000].ljust(SEGMENT_BYTES, b"\0"))


def swap(files: list[Path]) -> None:
    one, other = files[1].read_bytes(), files[2].read_bytes()
    files[1].write_bytes(other)
    files[2].write_bytes(one)


DEFECTS: dict[str, tuple[Callable[[list[Path]], None], str]] = {
    "flipped bit in a body": (lambda files: flip(files[1], 137), "another CRC|body_crc"),
    "flipped bit in a size": (lambda files: flip(files[1], 6), "size|bytes|entry"),
    "flipped bit in a record's length": (
        lambda files: flip(files[1], 48 + 85),
        "size|bytes|crc|CRC|length",
    ),
    "missing file in the run": (lambda files: files[2].unlink(), "must follow"),
    "missing last file": (lambda files: files[-1].unlink(), "the next file is missing"),
    "short file": (lambda files: files[1].write_bytes(files[1].read_bytes()[:-9]), "must follow"),
    "zeroed tail of a file": (zero_tail, "missing|neither|crc|size"),
    "files in the wrong order": (swap, "entry|stands at"),
    "empty file": (lambda files: files[-1].write_bytes(b""), "empty|missing|must follow|data is 0"),
}


@pytest.mark.parametrize(
    ("kind", "defect"),
    [
        (kind, defect)
        for kind in ("ledger", "java ledger", "plain")
        for defect in DEFECTS
        # Nothing tells how long a log without a ledger was.
        if (kind, defect) != ("plain", "missing last file")
    ],
)
def test_a_defect_is_named_and_no_row_is_left_out(tmp_path: Path, kind: str, defect: str) -> None:
    files = write_any(tmp_path, kind)
    plant, words = DEFECTS[defect]
    plant(files)
    with pytest.raises(SparkSourceError, match=words) as caught:
        direct.read_segments({"path": tmp_path})
    assert str(tmp_path) in str(caught.value), "it names the file"


def test_a_broken_chain_is_found_across_files(tmp_path: Path) -> None:
    """Every entry of the second file is good in itself, but it follows another first file."""
    write_any(tmp_path / "one", "ledger")
    other = [make_record("Other", n) for n in range(COUNT)]
    files = write_ledger(tmp_path / "two", other, committed_index=COUNT - 1)
    target = tmp_path / "one" / "dledger-n0" / "data" / files[3].name
    shutil.copy(files[3], target)
    with pytest.raises(SparkSourceError, match="chain_crc|index"):
        direct.read_segments({"path": tmp_path / "one"})


def test_checks_can_be_left_out_but_not_the_order(tmp_path: Path) -> None:
    files = write_any(tmp_path, "ledger")
    flip(files[1], 200)
    assert len(direct.read_segments({"path": tmp_path, "verify": "false"})) == COUNT
    swap(files)
    with pytest.raises(SparkSourceError):
        direct.read_segments({"path": tmp_path, "verify": "false"})


def test_the_open_file_of_a_plain_log_may_be_left_out(tmp_path: Path) -> None:
    files = write_any(tmp_path, "plain")
    rows = direct.read_segments({"path": tmp_path, "openSegment": "false"})
    assert 0 < len(rows) < COUNT
    assert numbers(rows) == list(range(len(rows)))
    flip(files[-1], 3)
    with pytest.raises(SparkSourceError):
        direct.read_segments({"path": tmp_path})


def test_files_that_a_broker_made_ahead_are_no_hole(tmp_path: Path) -> None:
    files = write_any(tmp_path, "plain")
    for _ in range(2):
        ahead = files[-1].with_name(f"{int(files[-1].name) + SEGMENT_BYTES:020d}")
        ahead.write_bytes(bytes(SEGMENT_BYTES))
        files.append(ahead)
    rows = direct.read_segments({"path": tmp_path})
    assert numbers(rows) == list(range(COUNT))
    closed = direct.read_segments({"path": tmp_path, "openSegment": "false"})
    assert 0 < len(closed) < COUNT
    files[2].write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(SparkSourceError, match="neither a record's nor the end"):
        direct.read_segments({"path": tmp_path})


def test_places_that_hold_no_log_are_named(tmp_path: Path) -> None:
    with pytest.raises(SparkSourceError, match="option path .* a directory with commitlog/"):
        direct.read_segments({"path": tmp_path})
    for name in ("dledger-n0", "dledger-n1"):
        write_ledger(tmp_path / name, RECORDS, committed_index=5)
    with pytest.raises(SparkSourceError, match="one member's directory"):
        direct.read_segments({"path": tmp_path})
    (tmp_path / "dledger-n0" / "checkpoint").unlink()
    with pytest.raises(SparkSourceError, match="nothing|no readable mark"):
        direct.read_segments({"path": tmp_path / "dledger-n0"})


def test_files_of_a_running_broker_give_the_rows_that_it_serves(cluster: UpCluster) -> None:
    send_numbered(cluster.name_server, "SegmentsLive", 200)
    served = direct.read_rows({"nameServer": cluster.name_server, "topic": "SegmentsLive"})
    (store,) = cluster.data.glob("*/dledger-*")
    options = {"path": store, "topics": "SegmentsLive", "brokerName": served[0]["brokerName"]}

    def read() -> list[dict[str, object]]:
        # A broker that has just begun has not yet noted what is committed.
        with contextlib.suppress(SparkSourceError):
            rows: list[dict[str, object]] = direct.read_segments(options)
            return rows if len(rows) == len(served) else []
        return []

    rows = wait_until(read, what="a checkpoint that covers all", deadline_s=60)
    place = ("queueId", "queueOffset")
    assert sorted(rows, key=lambda row: [str(row[name]).zfill(9) for name in place]) == sorted(
        served, key=lambda row: [str(row[name]).zfill(9) for name in place]
    )
