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

Int64s = npt.NDArray[np.int64]

# Separators are the only bytes up to here in blocks as they should be.
_MARK_MAX: Final = 2
# Up to so many cells a table of rows and names is counted, beyond that the pairs are sorted.
_CELLS_MAX: Final = 50_000_000


def slices(data: Any, starts: Int64s, ends: Int64s, kind: Any) -> Any:
    """Returns slices of a buffer as an Arrow array; they are copied.

    Args:
        data: a pyarrow buffer.
        starts: ascending.
        ends: none behind the start that follows.
        kind: the array's type, bytes or text; of text nothing is checked.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], kind)
    # Every second element of this array is one of the slices, those between are what lies between.
    borders = np.empty(2 * count, np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    parts = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(borders), data])
    return parts.take(pa.array(np.arange(0, 2 * count - 1, 2)))


class PropertyColumns:
    """The properties of a run of messages."""

    def __init__(self, blocks: Any) -> None:
        """Takes the blocks as Arrow text, none of them null."""
        self._count = len(blocks)
        self._blocks = blocks

    @cached_property
    def _pairs(self) -> tuple[Int64s, Any, Any, Any]:
        """Row, name and value of each property, in order of the rows; a name once in each row.

        The last is the names as codes, with the dictionary of those that occur.
        """
        rows, names, values = self._plain_pairs() or self._split_pairs()
        coded = names.dictionary_encode()
        is_last = _last_of_its_kind(rows, coded, self._count)
        if not is_last.all():
            mask = pa.array(is_last)
            rows, names, values = rows[is_last], names.filter(mask), values.filter(mask)
            coded = coded.filter(mask)
        return rows, names, values, coded

    def _plain_pairs(self) -> tuple[Int64s, Any, Any] | None:
        """Finds the pairs by the places of the separators, which is a third of the work.

        Returns None for blocks that are not as every producer writes them: in each row, pairs of a
        name with one separator behind it and a value with one behind it, and nothing is empty.
        """
        _, borders, data = self._blocks.buffers()
        if self._count == 0 or data is None:
            return None
        first = self._blocks.offset
        offsets = np.frombuffer(borders, np.int32)[first : first + self._count + 1]
        text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        marks = np.flatnonzero(text <= _MARK_MAX)
        kinds = text[marks]
        marks += offsets[0]
        starts, equals, ends = np.append(offsets[0], marks[1:-1:2] + 1), marks[0::2], marks[1::2]
        # Rows that are not empty must end with a separator, or a pair could lie in two of them.
        last = offsets[1:][np.diff(offsets) > 0] - 1 - offsets[0]
        if (
            len(marks) == 0
            or (kinds[0::2] != ord(NAME_VALUE_SEPARATOR)).any()
            or (kinds[1::2] != ord(PROPERTY_SEPARATOR)).any()
            or (text[last] != ord(PROPERTY_SEPARATOR)).any()
            or (starts >= equals).any()
            or (equals + 1 >= ends).any()
        ):
            return None
        counts = np.diff(np.searchsorted(ends, offsets))
        rows = np.repeat(np.arange(self._count), counts)
        kind = pa.string()
        return rows, slices(data, starts, equals, kind), slices(data, equals + 1, ends, kind)

    def _split_pairs(self) -> tuple[Int64s, Any, Any]:
        """Finds the pairs of any blocks."""
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
        return rows, names, values

    def find(self, name: str) -> Any:
        """Returns the values of one property as Arrow text, null where a message has it not."""
        rows, _, values, coded = self._pairs
        code = coded.dictionary.index(name).as_py()
        found = np.flatnonzero(coded.indices.to_numpy() == code)
        at = np.full(self._count, -1, np.int64)
        at[rows[found]] = found
        return values.take(pa.array(at, mask=at < 0))

    def maps(self, kind: Any) -> Any:
        """Returns all properties as an Arrow array of maps.

        Args:
            kind: the Arrow type of the column.
        """
        rows, names, values, _ = self._pairs
        borders = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=self._count), out=borders[1:])
        return pa.MapArray.from_arrays(pa.array(borders), names, values, type=kind)


def _lengths(texts: Any) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return lengths


def _last_of_its_kind(rows: Int64s, coded: Any, row_count: int) -> npt.NDArray[np.bool_]:
    """Tells which pairs have no later pair of the same name in the same row."""
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
