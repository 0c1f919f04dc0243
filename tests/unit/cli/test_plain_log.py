"""`ledgermq log` on plain commit logs: whole ones are good, damage is named, a torn end is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from tests.unit.cli.stores import flip, overwrite
from tests.unit.commitlog.test_plain_store import Plain

SEGMENT_BYTES = 4096
COUNT = 60


@pytest.fixture(scope="module")
def good_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About two segments, two queues, one of which has two files."""
    root = tmp_path_factory.mktemp("plain") / "store"
    plain = Plain(root, segment_bytes=SEGMENT_BYTES)
    plain.open()
    plain.send(COUNT // 2, queue_id=0)
    plain.send(COUNT // 2, queue_id=1)
    plain.close()
    return root


@pytest.fixture
def store(good_store: Path, tmp_path: Path) -> Path:
    return shutil.copytree(good_store, tmp_path / "store")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["log", *map(str, words)])
    text = capsys.readouterr()
    return code, text.out, text.err


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def places(capsys: pytest.CaptureFixture[str], store: Path) -> list[int]:
    return [json.loads(line)["position"] for line in run(capsys, "dump", store)[1].splitlines()]


def test_whole_log_is_good(good_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (good_store, good_store / "commitlog", good_store.parent):
        code, text, _ = run(capsys, "verify", path)
        assert code == 0, text
        # One record more tells the queues' ends in each file.
        assert f"2 queues with {COUNT} messages" in text
        assert text.endswith("good\n") and "note" not in text


def test_dump_and_stat_show_what_there_is(
    good_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = run(capsys, "dump", good_store, "--bodies")
    records = [json.loads(line) for line in text.splitlines()]
    sent = [entry["record"] for entry in records if entry["record"]["topic"] == "T"]
    assert (code, len(sent), sent[0]["body"], sent[-1]["queue_offset"]) == (0, COUNT, "T0-0", 29)
    assert all(entry["position"] == entry["record"]["physical_offset"] for entry in records)
    third = records[2]["position"]
    text = run(capsys, "dump", good_store, "--from-index", third, "--count", 2)[1]
    assert [json.loads(line) for line in text.splitlines()] == [
        {**entry, "record": {k: v for k, v in entry["record"].items() if k != "body"}}
        for entry in records[2:4]
    ]
    document = json.loads(run(capsys, "stat", good_store, "--json")[1])
    assert document[0]["topics"]["T"][0] == COUNT
    assert "T " in run(capsys, "stat", good_store)[1]


def test_flipped_byte_is_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = places(capsys, store)[5]
    flip(log_files(store)[0], place + 90)
    code, text, _ = run(capsys, "verify", store)
    assert code == 1
    assert f"no good record at {place}" in text
    assert run(capsys, "dump", store)[0] == 1


def test_torn_end_is_no_defect(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = places(capsys, store)[-1]
    file = log_files(store)[-1]
    overwrite(file, place % SEGMENT_BYTES + 60, bytes(200))
    # The unit of what is gone: a broker would cut it.
    code, text, _ = run(capsys, "verify", store)
    assert f"left out what a kill tore off at {place % SEGMENT_BYTES}" in text
    assert code == 0, text


def test_wrong_unit_is_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(store / "consumequeue" / "T" / "1" / f"{0:020d}", 3 * 20 + 7)
    code, text, _ = run(capsys, "verify", store)
    assert code == 1
    assert "queue T-1 offset 3" in text


def test_copies_of_a_slave_are_compared(
    good_store: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = run(capsys, "verify", good_store, store)
    assert code == 0 and "identical" in text
    # Nothing of a record but its born time, which no checksum covers.
    flip(log_files(store)[0], places(capsys, store)[4] + 45)
    code, text, _ = run(capsys, "verify", good_store, store)
    assert code == 1 and "differs from" in text
