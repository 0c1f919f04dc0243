"""Tables whose store is not well: answers that are 503, late or lost, files that are cut."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ledgermq.spark.errors import CorruptDataError, TableCommitError, TableReadError
from ledgermq.spark.tables import Storage, TablePlace, open_table, storage
from ledgermq.spark.tables.files import look
from ledgermq.spark.tables.formats import FORMATS
from ledgermq.spark.tables.storage import StoreKeys
from tests.spark.object_store import object_store
from tests.spark.test_tables_in_a_bucket import numbers, place_of, put, rows
from tests.spark.unwell_store import KINDS, UnwellStore, unwell


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreKeys]:
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture
def proxied(keys: StoreKeys) -> Iterator[tuple[UnwellStore, StoreKeys]]:
    with unwell(keys) as found:
        yield found


def replayed(table: Any, place: TablePlace) -> None:
    """A batch, which comes a second time, and one more, and a join of their files."""
    for batch in (0, 0, 1):
        folder = f"data/w-{batch}-{time.monotonic_ns()}"
        put(
            place.storage,
            f"{folder}/slot=AB/part-{batch}.parquet",
            rows(batch * 10, batch * 10 + 1),
        )
        if not table.holds("w", batch):
            table.add("w", batch, look(place.storage, folder))
    put(place.storage, "data/joined/slot=1/part-9.parquet", rows(0, 1, 10, 11))
    table.replace(table.files(), look(place.storage, "data/joined"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_that_spoils_each_request_once_loses_and_doubles_nothing(
    kind: str, keys: StoreKeys, proxied: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    """Also where it did what it was asked for, and only its answer got lost."""
    proxy, through = proxied
    place = place_of(kind, "unwell", through, tmp_path)
    replayed(open_table(place, create=True), place)
    assert all(proxy.told[fault] for fault in KINDS), proxy.told
    straight = place_of(kind, "unwell", keys, tmp_path)
    assert numbers(kind, straight) == ["0", "1", "10", "11"]
    assert len(open_table(straight, create=False).files()) == 1


def test_a_commit_whose_answer_got_lost_is_known_for_ones_own(
    keys: StoreKeys, proxied: tuple[UnwellStore, StoreKeys], tmp_path: Path
) -> None:
    """A join saw its own files in the table, and said that somebody else had replaced the old."""
    proxy, through = proxied
    proxy.kinds, proxy.part = (), "_delta_log/0"
    place = place_of("delta", "lost", through, tmp_path)
    table = open_table(place, create=True)
    proxy.kinds = ("lost",)
    replayed(table, place)
    assert proxy.told["lost"] >= 3
    assert numbers("delta", place_of("delta", "lost", keys, tmp_path)) == ["0", "1", "10", "11"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_that_is_down_is_named_with_the_cause(
    kind: str,
    keys: StoreKeys,
    proxied: tuple[UnwellStore, StoreKeys],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each more doubles the wait.
    monkeypatch.setattr(storage, "_TRIES", 2)
    proxy, through = proxied
    proxy.kinds = ()
    place = place_of(kind, "down", through, tmp_path)
    table = open_table(place, create=True)
    put(place.storage, "data/w-0/slot=AB/part.parquet", rows(1))
    files = look(place.storage, "data/w-0")
    proxy.is_down = True
    with pytest.raises((TableReadError, TableCommitError), match=place.storage.root) as told:
        table.add("w", 0, files)
    assert (
        "503" in str(told.value) or "SlowDown" in str(told.value) or "SLOW_DOWN" in str(told.value)
    )
    with pytest.raises(TableReadError, match=place.storage.root):
        open_table(place, create=False).files()
    proxy.is_down = False
    table.add("w", 0, files)
    assert numbers(kind, place_of(kind, "down", keys, tmp_path)) == ["1"]


def test_what_tasks_leave_behind_that_were_run_twice_is_no_part_of_a_batch(tmp_path: Path) -> None:
    """One that lost the race, or was taken for dead, may close its file when all is committed."""
    place = Storage("--path", str(tmp_path), StoreKeys())
    names = (
        "data/w-0/slot=AB/part-0.parquet",
        "data/w-0/_temporary/0/_temporary/attempt_1_m_000000_1/slot=AB/part-1.parquet",
        "data/w-0/__magic_job-1/slot=AB/part-2.parquet",
        "data/w-0/slot=AB/.part-3.parquet",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        put(place, name, rows(1))
    assert [file.path for file in look(place, "data/w-0")] == [names[0]]


def test_a_root_with_signs_of_hidden_files_hides_nothing(tmp_path: Path) -> None:
    place = Storage("--path", str(tmp_path / "_lake" / ".v1"), StoreKeys())
    Path(place.directory, "data/w-0").mkdir(parents=True)
    put(place, "data/w-0/part-0.parquet", rows(1))
    assert [file.rows for file in look(place, "data/w-0")] == [1]


def test_a_data_file_that_is_cut_is_named(tmp_path: Path) -> None:
    place = Storage("--path", str(tmp_path), StoreKeys())
    (tmp_path / "data").mkdir()
    pq.write_table(rows(1), tmp_path / "data" / "part.parquet")
    whole = (tmp_path / "data" / "part.parquet").read_bytes()
    for size in (0, 4, len(whole) // 2, len(whole) - 1):
        (tmp_path / "data" / "part.parquet").write_bytes(whole[:size])
        with pytest.raises(CorruptDataError, match=r"data/part.parquet: is no whole file"):
            look(place, "data")


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("delta", "_delta_log/*1.json"),
        ("iceberg", "metadata/*.metadata.json"),
        ("iceberg", "metadata/*-m0.avro"),
        ("iceberg", "metadata/snap-*.avro"),
        ("iceberg", "../lake.db"),
    ],
)
def test_a_table_whose_own_files_are_cut_is_refused(
    kind: str, pattern: str, tmp_path: Path
) -> None:
    path = tmp_path / "lake"
    place = TablePlace(
        kind, Storage("--path", str(path), StoreKeys()), catalog_file=tmp_path / "lake.db"
    )
    table = open_table(place, create=True)
    for batch in range(2):
        (path / f"data/w-{batch}").mkdir(parents=True)
        put(place.storage, f"data/w-{batch}/part-{batch}.parquet", rows(batch))
        table.add("w", batch, look(place.storage, f"data/w-{batch}"))
    files = sorted(path.glob(pattern))
    assert files
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        TableReadError, match=f"the table {place.storage.root} cannot be reached or read"
    ):
        open_table(place, create=False).files()


def test_a_list_of_iceberg_that_lacks_files_is_refused(tmp_path: Path) -> None:
    """A list that ends between two blocks reads as a shorter one."""
    place = TablePlace(
        "iceberg", Storage("--path", str(tmp_path), StoreKeys()), catalog_file=tmp_path / "c.db"
    )
    table: Any = open_table(place, create=True)
    (tmp_path / "data/w").mkdir(parents=True)
    put(place.storage, "data/w/part.parquet", rows(1, 2))
    table.add("w", 0, look(place.storage, "data/w"))
    (listed,) = tmp_path.glob("metadata/*-m0.avro")
    data = listed.read_bytes()
    # Head, sync mark, one block, sync mark.
    mark = data[-16:]
    listed.write_bytes(data[: data.index(mark) + 16])
    with pytest.raises(TableReadError, match="files of 0 rows, its last snapshot 2"):
        open_table(place, create=False).files()
