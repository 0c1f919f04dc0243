"""Segment files in an object store: the rows of a disk, by ranges, through faults of the store."""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.spark import SparkSourceError
from ledgermq.spark.errors import CorruptDataError, ObjectStoreError, OptionError, PathNotSeenError
from ledgermq.spark.jobs import copy_store
from ledgermq.spark.segment_plan import find_log, plan_segments
from ledgermq.spark.segment_walk import read_segment
from ledgermq.spark.tables.storage import Storage, StoreKeys
from tests.spark import direct
from tests.spark.log_files import SEGMENT_BYTES, flip, make_record, write_ledger, write_plain
from tests.spark.object_store import BUCKET, object_store
from tests.spark.test_segments import COUNT, RECORDS, numbers, write_any
from tests.spark.unwell_store import UnwellStore, unwell

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[UnwellStore, StoreKeys]]:
    """A store behind a proxy that counts what it gives, and spoils nothing unless it is told."""
    with object_store(tmp_path_factory.mktemp("store")) as keys, unwell(keys) as (proxy, found):
        proxy.kinds = ()
        yield proxy, found


def put(keys: StoreKeys, directory: Path, prefix: str) -> dict[str, str]:
    """Copies a directory into the bucket; returns the options by which it is read."""
    storage = Storage("path", f"s3a://{BUCKET}/{prefix}", keys)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            place = f"{storage.directory}/{path.relative_to(directory)}"
            with storage.files.open_output_stream(place) as stream:
                stream.write(path.read_bytes())
    return {
        "path": storage.spark_root,
        "fs.s3a.access.key": keys.access_key or "",
        "fs.s3a.secret.key": keys.secret_key or "",
        "fs.s3a.endpoint": keys.endpoint or "",
        "fs.s3a.endpoint.region": keys.region or "",
    }


@pytest.mark.parametrize("kind", ["ledger", "java ledger", "plain"])
def test_a_store_gives_the_rows_of_a_disk(
    kind: str, store: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    write_any(tmp_path, kind)
    options = put(store[1], tmp_path, f"same/{kind.replace(' ', '-')}")
    rows = direct.read_segments(options)
    assert rows == direct.read_segments({"path": tmp_path})
    assert numbers(rows) == list(range(COUNT))


def test_a_store_that_the_environment_names_is_read(
    store: tuple[UnwellStore, StoreKeys], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = store[1]
    write_any(tmp_path, "ledger")
    options = put(keys, tmp_path, "named")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(keys.access_key))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(keys.secret_key))
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(keys.endpoint))
    assert numbers(direct.read_segments({"path": options["path"]})) == list(range(COUNT))


def test_what_ails_a_store_for_a_while_changes_no_row(
    store: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    proxy, keys = store
    write_any(tmp_path, "ledger")
    options = put(keys, tmp_path, "unwell")
    proxy.kinds, proxy.part = ("503", "slow", "reset"), "unwell"
    try:
        assert numbers(direct.read_segments(options)) == list(range(COUNT))
    finally:
        proxy.kinds, proxy.part = (), ""
    assert min(proxy.told[kind] for kind in ("503", "slow", "reset")) > 0


def test_ranges_are_read_and_not_more_than_is_committed(
    store: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    """Entries larger than a window, too, and no file as a whole."""
    sizes = [100, 9 * MIB, 5 * MIB, 3 * MIB, 200, 5 * MIB, *[MIB] * 20]
    records = [make_record("T", number, body_bytes=size) for number, size in enumerate(sizes)]
    committed = 6
    directory = tmp_path / "dledger-n0"
    paths = write_ledger(directory, records, committed_index=committed, segment_bytes=64 * MIB)
    assert len(paths) == 1
    proxy, keys = store
    put(keys, directory, "ranges")
    proxy.given_bytes.clear()
    [part] = plan_segments(find_log(f"s3a://{BUCKET}/ranges", keys), reads_open_segment=True)
    planned = proxy.given_bytes.total()
    found = [
        bytes(body)
        for columns in read_segment(part, verifies=True, keys=keys)
        for body in columns.bodies.to_pylist()
    ]
    assert [len(body) for body in found] == sizes[: committed + 1]
    read = proxy.given_bytes.total() - planned
    # Nothing for the plan but names and heads; then what is committed, and a window behind it.
    needed = sum(sizes[: committed + 1])
    assert planned < 50_000 and needed < read < needed + 20 * MIB < 64 * MIB


def test_a_damaged_object_is_an_error_with_file_and_offset(
    store: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    paths = write_any(tmp_path, "ledger")
    flip(paths[1], 300)
    options = put(store[1], tmp_path, "damaged")
    place = f"s3a://{BUCKET}/damaged/dledger-n0/data/{paths[1].name} at "
    with pytest.raises(SparkSourceError, match=place):
        direct.read_segments(options)


def test_what_is_not_there_is_named(store: tuple[UnwellStore, StoreKeys], tmp_path: Path) -> None:
    proxy, keys = store
    paths = write_any(tmp_path, "ledger")
    put(keys, tmp_path, "gone")
    log = find_log(f"s3a://{BUCKET}/gone", keys)
    parts = plan_segments(log, reads_open_segment=True)
    storage = Storage("path", f"s3a://{BUCKET}/gone/dledger-n0/data", keys)
    storage.files.delete_file(f"{storage.directory}/{paths[2].name}")
    with pytest.raises(PathNotSeenError, match=f"{paths[2].name} is not there for the worker on"):
        list(read_segment(parts[2], verifies=True, keys=keys))
    with pytest.raises(OptionError, match="a directory with commitlog/"):
        find_log(f"s3a://{BUCKET}/nothing-here", keys)
    # Keys that a worker lacks are no file that is missing.
    proxy.refuses = True
    try:
        with pytest.raises(ObjectStoreError, match="asked by the worker on"):
            list(read_segment(parts[0], verifies=True, keys=keys))
    finally:
        proxy.refuses = False


def session_with(keys: StoreKeys) -> SimpleNamespace:
    """What the job asks a session for: the settings of Hadoop's client."""
    found = {
        "fs.s3a.access.key": keys.access_key,
        "fs.s3a.secret.key": keys.secret_key,
        "fs.s3a.endpoint": keys.endpoint,
        "fs.s3a.endpoint.region": keys.region,
    }
    hadoop = SimpleNamespace(hadoopConfiguration=lambda: found)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=hadoop))


@pytest.mark.parametrize("place", ["bucket", "directory"])
@pytest.mark.parametrize("kind", ["ledger", "java ledger", "plain"])
def test_a_store_is_copied_up_to_what_is_committed(
    place: str, kind: str, store: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    proxy, keys = store
    paths = write_any(tmp_path / "store", kind, committed_index=70)
    target = f"s3a://{BUCKET}/copied/{kind.replace(' ', '-')}"
    if place == "directory":
        target = str(tmp_path / "copy")
    words = argparse.Namespace(store=str(tmp_path / "store"), target=target)
    session = session_with(keys)
    assert copy_store.run(session, words) == 0  # type: ignore[arg-type]
    options = {"path": target, "openSegment": "true", **put(keys, tmp_path / "no", "no")}
    rows = direct.read_segments({**options, "path": target})
    closed = direct.read_segments({"path": tmp_path / "store", "openSegment": "false"})
    assert rows == closed
    assert len(rows) == (71 if kind != "plain" else len(closed)) < COUNT
    assert len(paths) > 4


def write_grown(directory: Path, kind: str, count: int) -> list[Path]:
    """The store when it had so many of the records."""
    shutil.rmtree(directory, ignore_errors=True)
    if kind == "plain":
        return write_plain(directory, RECORDS[:count])
    return write_ledger(
        directory / "dledger-n0",
        RECORDS[:count],
        committed_index=count - 1,
        is_java=kind == "java ledger",
    )


@pytest.mark.parametrize("place", ["bucket", "directory"])
@pytest.mark.parametrize("kind", ["ledger", "java ledger", "plain"])
def test_a_copy_is_brought_up_to_date_without_the_files_that_it_has(
    place: str,
    kind: str,
    store: tuple[UnwellStore, StoreKeys],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last file may have been written on, so it is copied again. What retention removed
    stays.
    """
    keys = store[1]
    directory, target = tmp_path / "store", f"s3a://{BUCKET}/grown/{kind.replace(' ', '-')}"
    if place == "directory":
        target = str(tmp_path / "copy")
    words = argparse.Namespace(store=str(directory), target=target)
    session: Any = session_with(keys)
    copies: list[str] = []
    real = copy_store._copy

    def copy(files: Any, path: str, *to: Any) -> None:
        copies.append(path)
        real(files, path, *to)

    monkeypatch.setattr(copy_store, "_copy", copy)
    write_grown(directory, kind, 85)
    copy_store.run(session, words)
    first = copies.copy()
    assert len(first) > 2
    paths = write_grown(directory, kind, COUNT)
    paths[0].unlink()
    copies.clear()
    capsys.readouterr()
    copy_store.run(session, words)
    whole = [str(path) for path in (paths if kind != "plain" else paths[:-1])]
    assert copies == whole[len(first) - 1 :]
    kept = len(first) - 2
    assert f"copied {len(copies)} files to" in (said := capsys.readouterr().out)
    assert f"; {kept} were there already" in said
    write_grown(directory, kind, COUNT)
    options = {**put(keys, tmp_path / "no", "no"), "path": target}
    rows = direct.read_segments(options)
    assert rows == direct.read_segments({"path": directory, "openSegment": str(kind != "plain")})
    assert len(rows) > 60


@pytest.mark.parametrize("kind", ["ledger", "java ledger", "plain"])
def test_a_copy_of_another_log_is_refused(
    kind: str, store: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    directory, target = tmp_path / "store", tmp_path / "copy"
    words = argparse.Namespace(store=str(directory), target=str(target))
    session: Any = session_with(store[1])

    def refusal(match: str) -> None:
        before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
        with pytest.raises(CorruptDataError, match=match):
            copy_store.run(session, words)
        after = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
        assert after == before

    write_grown(directory, kind, COUNT)
    copy_store.run(session, words)
    copied = sorted(path for path in target.rglob("*") if path.name.isdigit())
    # The store of a member that has less, or lost some.
    write_grown(directory, kind, 50)
    refusal(f"{copied[-1].name}: the copy ends with it, and the store has 0+ to ")
    write_grown(directory, kind, COUNT)
    # Others of the same size: what their beginning, their end, or the beginning of the last tell.
    for path, offset in ((copied[1], 60), (copied[1], SEGMENT_BYTES - 1), (copied[-1], 30)):
        flip(path, offset)
        refusal(f"{path.name}: it is not a copy of {directory}.*; remove the copy first")
        flip(path, offset)
    copied[1].write_bytes(copied[1].read_bytes()[:-1])
    refusal(f"{copied[1].name}: it is not a copy of {directory}")
    shutil.rmtree(directory)
    write_grown(directory, "ledger" if kind == "plain" else "plain", COUNT)
    refusal("a copy with (data|commitlog)/ is there, and the store has")


@pytest.mark.parametrize("kind", ["ledger", "plain"])
def test_a_copy_that_was_cut_off_is_refused(
    kind: str,
    store: tuple[UnwellStore, StoreKeys],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a log without a ledger nothing else would tell that files are missing at the end."""
    paths = write_any(tmp_path / "store", kind)
    words = argparse.Namespace(store=str(tmp_path / "store"), target=str(tmp_path / "copy"))
    real = copy_store.plan_segments

    def planned_before_retention(*given: Any, **how: Any) -> Any:
        parts = real(*given, **how)
        paths[3].unlink()
        return parts

    monkeypatch.setattr(copy_store, "plan_segments", planned_before_retention)
    with pytest.raises(SparkSourceError, match=f"{paths[3].name} is not there"):
        copy_store.run(session_with(store[1]), words)  # type: ignore[arg-type]
    with pytest.raises(CorruptDataError, match="a copy of a store that was cut off"):
        direct.read_segments({"path": tmp_path / "copy"})
    # Another start finishes it; of the last file only a part may have come.
    monkeypatch.undo()
    write_grown(tmp_path / "store", kind, COUNT)
    copied = sorted(path for path in (tmp_path / "copy").rglob("*") if path.name.isdigit())
    copied[-1].write_bytes(copied[-1].read_bytes()[:20])
    copy_store.run(session_with(store[1]), words)  # type: ignore[arg-type]
    assert direct.read_segments({"path": tmp_path / "copy"}) == direct.read_segments(
        {"path": tmp_path / "store", "openSegment": str(kind != "plain")}
    )
