"""The properties of many messages at once, as Arrow arrays; layout: protocol/properties.py.

All blocks are split into one long list of names and values, beside which stands the row of each
pair. A look-up of one name in all rows and the map column are both made from that list. The rules
are those of parse_properties: what has no name or no value is no property, of two the later wins.
"""

from functools import cached_property
from typing import Any, Final, NamedTuple

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


def gather(buffer: npt.NDArray[np.uint8], at: Int64s, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns the structures of one kind that begin at some bytes."""
    if len(at) == 0:
        return np.empty(0, kind)
    # One that begins at each byte; as bytes, which are copied quicker than fields are.
    size = kind.itemsize
    every = np.ndarray(len(buffer) - size + 1, f"V{size}" if kind.names else kind, buffer, 0, (1,))
    return every[at].view(kind)


class _Places(NamedTuple):
    """Where the properties stand in the bytes of the blocks, in order of the rows."""

    # Of each property: its row, where its name begins and ends, and where its value ends, which
    # begins behind the byte at which the name ends.
    rows: Int64s
    starts: Int64s
    equals: Int64s
    ends: Int64s


class PropertyColumns:
    """The properties of a run of messages."""

    def __init__(self, blocks: Any) -> None:
        """Takes the blocks as Arrow text, none of them null."""
        self._count = len(blocks)
        self._blocks = blocks

    @cached_property
    def _places(self) -> _Places | None:
        """Finds the properties by the places of the separators, which is a part of the work of
        splitting, and copies nothing.

        Returns None for blocks that are not as every producer writes them: in each row, pairs of a
        name with one separator behind it and a value with one behind it, which the last pair of the
        row may lack, and nothing is empty.
        """
        _, borders, data = self._blocks.buffers()
        if self._count == 0 or data is None:
            return None
        first = self._blocks.offset
        offsets = np.frombuffer(borders, np.int32)[first : first + self._count + 1]
        text = np.frombuffer(data, np.uint8)
        marks = np.flatnonzero(text[offsets[0] : offsets[-1]] <= _MARK_MAX) + offsets[0]
        kinds = text[marks]
        equals = marks[np.flatnonzero(kinds == ord(NAME_VALUE_SEPARATOR))]
        ends = marks[np.flatnonzero(kinds == ord(PROPERTY_SEPARATOR))]
        if len(equals) == 0 or len(equals) + len(ends) < len(marks):
            return None
        # A row that ends without a separator ends its last pair with its own end.
        last = offsets[1:][np.diff(offsets) > 0].astype(np.int64) - 1
        is_open = text[last] != ord(PROPERTY_SEPARATOR)
        ends = np.sort(np.concatenate((ends, last[is_open] + 1)), kind="stable")
        if len(ends) != len(equals):
            return None
        is_closed = text[np.minimum(ends, len(text) - 1)] == ord(PROPERTY_SEPARATOR)
        starts = np.append(offsets[0], (ends + is_closed)[:-1])
        if (starts >= equals).any() or (equals + 1 >= ends).any():
            return None
        return _Places(self._rows_of(ends, offsets, last + is_open), starts, equals, ends)

    def _rows_of(self, ends: Int64s, offsets: npt.NDArray[np.int32], row_ends: Int64s) -> Int64s:
        """Returns the row of each pair, given where pairs end, rows begin, and those end that are
        not empty.
        """
        count, rest = divmod(len(ends), self._count)
        if not rest and np.array_equal(ends[count - 1 :: count], row_ends):
            # Rows with as many pairs each are the usual case.
            return np.repeat(np.arange(self._count), count)
        # A pair that ends where the next row begins belongs to the row before.
        counts = np.diff(np.searchsorted(ends - 1, offsets))
        return np.repeat(np.arange(self._count), counts)

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
        """Copies the pairs from their places, None where there are none."""
        places = self._places
        if places is None:
            return None
        data, kind = self._blocks.buffers()[2], pa.string()
        return (
            places.rows,
            slices(data, places.starts, places.equals, kind),
            slices(data, places.equals + 1, places.ends, kind),
        )

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
        if self._places is not None:
            return self._find_in_places(self._places, name.encode())
        rows, _, values, coded = self._pairs
        code = coded.dictionary.index(name).as_py()
        found = np.flatnonzero(coded.indices.to_numpy() == code)
        return self._in_rows(rows[found], values.take(pa.array(found)))

    def _find_in_places(self, places: _Places, name: bytes) -> Any:
        data = self._blocks.buffers()[2]
        text = np.frombuffer(data, np.uint8)
        found = np.flatnonzero(places.equals - places.starts == len(name))
        found = found[np.flatnonzero(_are(name, text, places.starts[found]))]
        rows = places.rows[found]
        if len(rows) > 1:
            # Of two in a row the later one.
            is_last = np.append(rows[1:] != rows[:-1], True)
            if not is_last.all():
                found, rows = found[is_last], rows[is_last]
        values = slices(data, places.equals[found] + 1, places.ends[found], pa.string())
        return self._in_rows(rows, values)

    def _in_rows(self, rows: Int64s, values: Any) -> Any:
        """Returns values in their rows, null in all others."""
        if len(rows) == self._count:
            return values
        at = np.full(self._count, -1, np.int64)
        at[rows] = np.arange(len(rows))
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


def _are(word: bytes, text: npt.NDArray[np.uint8], starts: Int64s) -> npt.NDArray[np.bool_]:
    """Tells at which places the bytes of a word stand; they are compared up to eight at once."""
    are = np.ones(len(starts), np.bool_)
    at = 0
    for width in (8, 4, 2, 1):
        while len(word) - at >= width:
            part = int.from_bytes(word[at : at + width], "little")
            are &= gather(text, starts + at, np.dtype(f"<u{width}")) == part
            at += width
    return are


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
