"""`ledgermq store convert`: both ways, restarted, refused; the source stays as it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from ledgermq.cli.convert_target import LedgerTarget
from ledgermq.cli.main import main
from ledgermq.commitlog import AppendMessage, opening_record
from ledgermq.commitlog.plain_records import PLAIN_BLANK, PLAIN_BLANK_MAGIC
from ledgermq.protocol.record import decode_record, encode_record
from tests.unit.cli.stores import SEGMENT_BYTES, flip, make_store
from tests.unit.commitlog.single_member import HOST, Broker, clean
from tests.unit.commitlog.single_member import message as ledger_message
from tests.unit.commitlog.test_plain_store import Plain, message

SMALL = (
    "maxHashSlotNum=50", "maxIndexNum=500", "maxMessageSize=1024",
    "mappedFileSizeDLedgerIndex=32768", "mappedFileSizeConsumeQueue=2000",
)  # fmt: skip
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
COMMIT = 8


def contents(root: Path) -> dict[str, str]:
    """A hash of every file."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def plain_store(root: Path, count: int = 200) -> Path:
    """Messages in two queues, transactions among them, in some segments; cleanly closed."""
    plain = Plain(root, segment_bytes=SEGMENT_BYTES)
    plain.open()
    for start in range(0, count, 20):
        for queue_id in (0, 1):
            bodies = [f"{queue_id}-{start // 2 + i} " + "b" * 700 for i in range(10)]
            plain.append([message(body, "Orders", queue_id) for body in bodies])
            plain.confirm()
            plain.now_ms += 1000
    [half] = plain.append([message("half", HALF)])
    committed = message("committed", "Orders", sys_flag=COMMIT)
    places = [half.physical_offset]
    plain.append([committed._replace(prepared_transaction_offset=places[0])])
    [half] = plain.append([message("half", HALF)])
    places.append(half.physical_offset)
    plain.append([committed._replace(prepared_transaction_offset=places[1])])
    plain.confirm()
    plain.close()
    config = root / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{0:7,1:9}}}')
    (config / "delayOffset.json").write_text('{"offsetTable":{3:9}}')
    return root


def convert(*words: object) -> int:
    return main(["store", "convert", *map(str, words), *SMALL])


def read_all(plain: Plain | Broker, topic: str, queue_id: int) -> list[bytes]:
    """All records of a queue without their places."""
    found, offset = [], plain.store.min_offset(topic, queue_id)
    while offset < plain.store.max_offset(topic, queue_id):
        result = plain.store.get_message(topic, queue_id, offset, 32, None)
        for part in result.parts:
            record = decode_record(part)
            assert record.queue_offset == offset
            offset += 1
            found.append(part[:28] + part[36:])
    return found


@pytest.fixture(scope="module")
def good_plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_store(tmp_path_factory.mktemp("good") / "plain")


@pytest.fixture
def plain(good_plain: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(good_plain, tmp_path / "plain")


def on_ledger(root: Path) -> Broker:
    sizes = {"index_slot_count": 50, "index_entry_count": 500, "queue_segment_bytes": 2000}
    return Broker(root, segment_bytes=SEGMENT_BYTES, index_segment_bytes=32768, **sizes)


def test_a_plain_store_becomes_a_ledger_and_comes_back(
    good_plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(good_plain)
    assert convert(good_plain, tmp_path / "ledger", "--to", "ledger", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["messages"], report["queues"], report["notes"]) == (204, 3, [])
    assert contents(good_plain) == before
    assert main(["log", "verify", str(tmp_path / "ledger")]) == 0
    broker, origin = on_ledger(tmp_path / "ledger"), Plain(good_plain, segment_bytes=SEGMENT_BYTES)
    assert (broker.report.dispatched_count, broker.report.was_clean) == (0, True)
    origin.open()
    for queue_id, count in ((0, 102), (1, 100)):
        found = read_all(broker, "Orders", queue_id)
        assert len(found) == count
        assert [part[:28] for part in found] == [
            part[:28] for part in read_all(origin, "Orders", queue_id)
        ]
    assert len(broker.store.query("Orders", "k1", 64, 0, 1 << 60).parts) == 64
    broker.close()
    origin.close()
    capsys.readouterr()
    assert convert(tmp_path / "ledger", tmp_path / "again", "--to", "plain") == 0
    assert "204 messages in 3 queues were found" in capsys.readouterr().out
    for path in (good_plain / "commitlog").iterdir():
        assert (tmp_path / "again/commitlog" / path.name).read_bytes() == path.read_bytes()
    for name in ("consumerOffset.json", "delayOffset.json"):
        copied = tmp_path / "again/config" / name
        assert copied.read_bytes() == (good_plain / "config" / name).read_bytes()
    assert not (tmp_path / "again.converting").exists()


def test_a_commit_names_its_half_message_where_it_is_now(good_plain: Path, tmp_path: Path) -> None:
    assert convert(good_plain, tmp_path / "ledger", "--to", "ledger") == 0
    broker = on_ledger(tmp_path / "ledger")
    for number in (0, 1):
        half = decode_record(broker.pull(HALF, 0, number).parts[0])
        commit = decode_record(broker.pull("Orders", 0, 100 + number).parts[0])
        assert commit.prepared_transaction_offset == half.physical_offset
    broker.close()


def test_files_have_the_time_of_their_last_record(good_plain: Path, tmp_path: Path) -> None:
    assert convert(good_plain, tmp_path / "ledger", "--to", "ledger") == 0
    times = [
        path.stat().st_mtime for path in sorted((tmp_path / "ledger/dledger-n0/data").iterdir())
    ]
    assert times == sorted(times) and times[0] < times[-1] == 1020.0
    queue = tmp_path / "ledger/consumequeue/Orders/1" / f"{0:020d}"
    assert queue.stat().st_mtime == 1019.0


def test_the_ledger_of_a_broker_becomes_plain(tmp_path: Path) -> None:
    make_store(tmp_path / "ledger", 300, body_bytes=800)
    before = contents(tmp_path / "ledger")
    assert convert(tmp_path / "ledger", tmp_path / "plain", "--to", "plain") == 0
    assert contents(tmp_path / "ledger") == before
    plain = Plain(tmp_path / "plain", segment_bytes=SEGMENT_BYTES)
    report = plain.open()
    assert report.was_clean and report.dispatched_count == 0
    assert [len(read_all(plain, "Orders", queue_id)) for queue_id in (0, 1)] == [150, 150]


def mixed_store(root: Path) -> Path:
    """As Java makes it: the plain log is closed by a blank, and the ledger begins behind it."""
    plain_store(root, count=40)
    last = max((root / "commitlog").iterdir())
    content = bytearray(last.read_bytes())
    end = len(content.rstrip(b"\0"))
    # The last record ends in its properties, which end in no zero.
    PLAIN_BLANK.pack_into(content, end, SEGMENT_BYTES - end, PLAIN_BLANK_MAGIC)
    last.write_bytes(content)
    (root / "dispatch.checkpoint").unlink()
    broker = Broker(root, segment_bytes=SEGMENT_BYTES, open_store=False)
    broker.ledger_store.reset(0, int(last.name) + SEGMENT_BYTES)
    broker.ledger.propose([opening_record(1, HOST, 2000)])
    later = [message(f"later {i}", "Orders", 1) for i in range(30)]
    for number, sent in enumerate(later):
        broker.ledger.propose([record_of(sent, 20 + number)])
    broker.ledger_store.write_checkpoint(broker.ledger_store.last_index)
    broker.ledger_store.close()
    return root


def record_of(sent: AppendMessage, queue_offset: int) -> bytes:
    return encode_record(
        sent.topic.encode(), sent.queue_id, 0, queue_offset, 0, 0, 1, HOST, 3_000_000, HOST, 0, 0,
        sent.body, sent.properties,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "ledger"])
def test_a_mixed_store_becomes_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    source = mixed_store(tmp_path / "mixed")
    before = contents(source)
    assert convert(source, tmp_path / "new", "--to", kind, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["from"], report["messages"], report["queues"]) == ("mixed", 74, 3)
    assert contents(source) == before
    if kind == "plain":
        made: Plain | Broker = Plain(tmp_path / "new", segment_bytes=SEGMENT_BYTES)
        made.open()
    else:
        made = on_ledger(tmp_path / "new")
    found = [part.partition(b"later ")[2][:2] for part in read_all(made, "Orders", 1)]
    assert len(found) == 50 and found[20:22] == [b"0\x06", b"1\x06"]
    made.close()


@pytest.mark.parametrize("stop_at", [1, 4, 8])
def test_an_attempt_that_was_stopped_goes_on(
    good_plain: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stop_at: int,
) -> None:
    target, calls = tmp_path / "ledger", [0]
    assert convert(good_plain, tmp_path / "whole", "--to", "ledger", "--json") == 0
    count = json.loads(capsys.readouterr().out)["records"]
    monkeypatch.setattr("ledgermq.cli.convert._BATCH_RECORDS", 50)
    real = LedgerTarget.append
    finish = LedgerTarget.finish

    def append(self: LedgerTarget, records: list[bytes]) -> list[int]:
        calls[0] += 1
        if calls[0] == stop_at:
            raise KeyboardInterrupt
        return real(self, records)

    def late(self: LedgerTarget) -> None:
        finish(self)
        if stop_at == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(LedgerTarget, "append", append)
        stopping.setattr(LedgerTarget, "finish", late)
        assert convert(good_plain, target, "--to", "ledger") == 1
    assert not target.exists()
    capsys.readouterr()
    assert convert(good_plain, target, "--to", "ledger", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["found_records"] == min(50 * (stop_at - 1), count)
    data = f"dledger-n0/data/{0:020d}"
    assert (target / data).read_bytes() == (tmp_path / "whole" / data).read_bytes()
    assert main(["log", "verify", str(target)]) == 0


def test_queues_without_messages_go_on_with_their_numbers(tmp_path: Path) -> None:
    source = Plain(tmp_path / "plain", segment_bytes=SEGMENT_BYTES)
    source.open()
    source.append([message("old " * 300, "Gone", 2) for _ in range(30)])
    source.confirm()
    source.now_ms += 100 * 3_600_000
    source.append([message("new " * 300, "Kept", 0) for _ in range(80)])
    source.confirm()
    source.store.flush()
    assert clean(source.store, source.now_ms, 4, 10).drop_before
    source.close()
    assert convert(tmp_path / "plain", tmp_path / "ledger", "--to", "ledger") == 0
    broker = on_ledger(tmp_path / "ledger").lead()
    [result] = broker.send(ledger_message(b"next", "Gone", 2))
    assert result.queue_offset == 30
    assert len(read_all(broker, "Kept", 0)) == 80
    broker.close()


@pytest.mark.parametrize("at", [100, 2 * SEGMENT_BYTES + 100])
def test_a_damaged_source_is_refused(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    path = plain / "commitlog" / f"{at - at % SEGMENT_BYTES:020d}"
    flip(path, at % SEGMENT_BYTES)
    before = contents(plain)
    assert convert(plain, tmp_path / "ledger", "--to", "ledger") == 1
    assert f"{path}: no good record at" in capsys.readouterr().err
    assert contents(plain) == before and not (tmp_path / "ledger").exists()


def test_another_source_does_not_go_on_with_an_attempt(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = plain_store(tmp_path / "other", count=20)
    shutil.copytree(other, tmp_path / "ledger.converting")
    assert convert(plain, tmp_path / "first", "--to", "ledger") == 0
    shutil.rmtree(tmp_path / "ledger.converting")
    (tmp_path / "first").rename(tmp_path / "ledger.converting")
    assert convert(other, tmp_path / "ledger", "--to", "ledger") == 1
    assert "remove" in capsys.readouterr().err


def test_what_cannot_be_converted_is_told(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(*words: object) -> str:
        assert convert(*words) == 1
        return capsys.readouterr().err

    assert "is a plain store already" in refusal(plain, tmp_path / "x", "--to", "plain")
    assert "holds neither" in refusal(tmp_path, tmp_path / "x", "--to", "plain")
    (tmp_path / "x").mkdir()
    assert "exists" in refusal(plain, tmp_path / "x", "--to", "ledger")
    assert "stays as it is" in refusal(plain, plain / "y", "--to", "ledger")
    (plain / "abort").touch()
    assert "did not stop cleanly" in refusal(plain, tmp_path / "y", "--to", "ledger")
    (plain / "abort").unlink()
    (plain / "config/delayOffset.json").write_text('{"offsetTable":{3:9},"plan":[7,[[3,10,1]]]}')
    assert "deliveries under way" in refusal(plain, tmp_path / "y", "--to", "ledger")


def test_light_queues_are_those_of_the_source(tmp_path: Path) -> None:
    """Offsets in light queues stand in the records, which are converted as they are."""
    plain = Plain(tmp_path / "plain", segment_bytes=SEGMENT_BYTES, has_light_queues=True)
    plain.open()
    named = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"
    for number in range(5):
        text = message(f"{number}", queue_id=number % 2)
        plain.append([text._replace(properties=named)])
        plain.confirm()
    before = plain.read("%LMQ%b")
    plain.close()
    for source, target, kind in (("plain", "ledger", "ledger"), ("ledger", "again", "plain")):
        words = [str(tmp_path / source), str(tmp_path / target), "--to", kind]
        assert main(["store", "convert", *words, *SMALL]) == 0
        assert main(["log", "verify", str(tmp_path / target)]) == 0
    again = Plain(tmp_path / "again", segment_bytes=SEGMENT_BYTES)
    again.open()
    assert (len(before), again.read("%LMQ%b")) == (5, before)
    again.close()
