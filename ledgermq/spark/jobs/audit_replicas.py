"""Whether replicas of a log hold the same: by checksums of pieces, each file in a task of its own.

All groups are compared in one go, so that no worker waits for the last file of each. Where pieces
differ, one more look leaves out the checksums of entries: Java keeps none.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession

from ledgermq.spark.jobs.store_audit import StoreAudit
from ledgermq.spark.segment_audit import PIECE_BYTES, entry_checksums, piece_checksums
from ledgermq.spark.segment_files import files_of
from ledgermq.spark.segment_plan import SegmentRange
from ledgermq.spark.tables.storage import StoreKeys


class _Replicas(NamedTuple):
    """Stores of one group that have a range in common."""

    stores: list[StoreAudit]
    start: int
    end: int


class _Place(NamedTuple):
    """A store: number of its group, and its own there."""

    group: int
    store: int


# Checksums of pieces by their positions.
_Pieces = dict[int, int]


def compare_replicas(
    spark: SparkSession, groups: Sequence[list[StoreAudit]], keys: StoreKeys
) -> None:
    """Compares what all stores of a group have committed and could be checked.

    Args:
        spark: runs the tasks.
        groups: the stores of each group; get defects and notes.
        keys: of the object store.
    """
    common = [found for stores in groups if (found := _shared_by(stores)) is not None]
    work = [
        (_Place(i, j), part.path, found.start, found.end)
        for i, found in enumerate(common)
        for j, store in enumerate(found.stores)
        for part in store.segments
    ]
    if not work:
        return

    def checksums(item: tuple[_Place, str, int, int]) -> tuple[_Place, _Pieces]:
        return item[0], piece_checksums(*item[1:], keys)

    pieces: dict[_Place, _Pieces] = {}
    for place, sums in spark.sparkContext.parallelize(work, len(work)).map(checksums).collect():
        pieces.setdefault(place, {}).update(sums)
    differing: dict[_Place, list[int]] = {}
    for i, found in enumerate(common):
        first = pieces.get(_Place(i, 0), {})
        for j in range(1, len(found.stores)):
            own = pieces.get(_Place(i, j), {})
            at = sorted(at for at, checksum in first.items() if own.get(at) != checksum)
            if at:
                differing[_Place(i, j)] = at
    alike = _alike_but_for_checksums(spark, common, differing, keys)
    for place, at in differing.items():
        stores = common[place.group].stores
        store = stores[place.store]
        what = f"{store.directory} differs from {stores[0].directory} in {len(at)} pieces"
        if place in alike:
            store.notes.append(f"{what}, but not in what entries hold: only in their checksums")
            continue
        store.defects.append(f"{what}, first between position {at[0]} and the next MiB")


def _shared_by(stores: list[StoreAudit]) -> _Replicas | None:
    """Returns what stores have in common, None where there is nothing to compare."""
    stores = [store for store in stores if store.end_position]
    if len(stores) < 2:
        return None
    start = max(store.first_position for store in stores)
    end = min(store.end_position for store in stores)
    if start >= end:
        stores[0].notes.append("the stores have no committed range in common")
        return None
    return _Replicas(stores, start, end)


def _alike_but_for_checksums(
    spark: SparkSession,
    common: list[_Replicas],
    differing: dict[_Place, list[int]],
    keys: StoreKeys,
) -> set[_Place]:
    """Returns which stores differ from their group's first one in checksums of entries alone."""
    by_group: dict[int, set[int]] = {}
    for place, at in differing.items():
        by_group.setdefault(place.group, set()).update(at)
    grids = {i: frozenset(at - at % PIECE_BYTES for at in found) for i, found in by_group.items()}
    places = [*(_Place(i, 0) for i in by_group), *differing]
    work = [
        (place, part, grids[place.group])
        for place in places
        for part in common[place.group].stores[place.store].segments
        if _has_any(part, by_group[place.group], keys)
    ]
    if not work:
        return set()

    def checksums(item: tuple[_Place, SegmentRange, frozenset[int]]) -> tuple[_Place, str, _Pieces]:
        place, part, grid = item
        return place, part.path.rpartition("/")[2], entry_checksums(part, grid, keys)

    found: dict[_Place, dict[str, _Pieces]] = {place: {} for place in places}
    for place, name, sums in (
        spark.sparkContext.parallelize(work, len(work)).map(checksums).collect()
    ):
        found[place][name] = sums
    return {place for place in differing if found[place] == found[_Place(place.group, 0)]}


def _has_any(part: SegmentRange, positions: set[int], keys: StoreKeys) -> bool:
    """Tells whether a file holds the beginning of one of some pieces."""
    end = part.position + files_of(part.path, keys).size(part.path)
    return any(part.position <= at < end for at in positions)
