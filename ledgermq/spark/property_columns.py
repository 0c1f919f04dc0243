"""The properties of many messages at once, as Arrow arrays; layout: protocol/properties.py.

All blocks are split into one long list of names and values, beside which stands the row of each
pair. A look-up of one name in all rows and the map column are both made from that list. The rules
are those of parse_properties: what has no name or no value is no property, of two the later wins.
"""

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ledgermq.protocol.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

# Up to so many cells a table of rows and names is counted, beyond that the pairs are sorted.
_CELLS_MAX: Final = 50_000_000


class PropertyColumns:
    """The properties of a run of messages."""

    def __init__(self, blocks: Any) -> None:
        """Takes the blocks as Arrow text, none of them null."""
        self._count = len(blocks)
        self._blocks = blocks

    @cached_property
    def _pairs(self) -> tuple[npt.NDArray[np.int64], Any, Any]:
        """Row, name and value of each property, in order of the rows; a name once in each row."""
        lists = pc.split_pattern(self._blocks, PROPERTY_SEPARATOR)
        borders = lists.offsets.to_numpy().astype(np.int64)
        rows = np.repeat(np.arange(self._count), np.diff(borders))
        elements = lists.values.slice(int(borders[0]), int(borders[-1] - borders[0]))
        parts = pc.split_pattern(elements, NAME_VALUE_SEPARATOR, max_splits=1)
        at = parts.offsets.to_numpy().astype(np.int64)
        has_value = np.diff(at) == 2
        names = parts.values.take(pa.array(at[:-1]))
        values = parts.values.take(pa.array(at[:-1] + has_value))
        is_good = has_value & (_lengths(names) > 0) & (_lengths(values) > 0)
        if not is_good.all():
            mask = pa.array(is_good)
            rows, names, values = rows[is_good], names.filter(mask), values.filter(mask)
        is_last = _last_of_its_kind(rows, names, self._count)
        if not is_last.all():
            mask = pa.array(is_last)
            rows, names, values = rows[is_last], names.filter(mask), values.filter(mask)
        return rows, names, values

    def find(self, name: str) -> Any:
        """Returns the values of one property as Arrow text, null where a message has it not."""
        rows, names, values = self._pairs
        found = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
        at = np.full(self._count, -1, np.int64)
        at[rows[found]] = found
        return values.take(pa.array(at, mask=at < 0))

    def maps(self, kind: Any) -> Any:
        """Returns all properties as an Arrow array of maps.

        Args:
            kind: the Arrow type of the column.
        """
        rows, names, values = self._pairs
        borders = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=self._count), out=borders[1:])
        return pa.MapArray.from_arrays(pa.array(borders), names, values, type=kind)


def _lengths(texts: Any) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return lengths


def _last_of_its_kind(
    rows: npt.NDArray[np.int64], names: Any, row_count: int
) -> npt.NDArray[np.bool_]:
    """Tells which pairs have no later pair of the same name in the same row."""
    coded = names.dictionary_encode()
    name_count = max(len(coded.dictionary), 1)
    cells = rows * name_count + coded.indices.to_numpy(zero_copy_only=False)
    is_last = np.ones(len(rows), np.bool_)
    if row_count * name_count <= _CELLS_MAX:
        is_unique = len(cells) == 0 or np.bincount(cells).max() == 1
    else:
        is_unique = len(np.unique(cells)) == len(cells)
    if not is_unique:
        # In reverse, the first of each kind is the last one.
        _, firsts = np.unique(cells[::-1], return_index=True)
        is_last[:] = False
        is_last[len(cells) - 1 - firsts] = True
    return is_last
