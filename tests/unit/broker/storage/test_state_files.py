"""State files: fastjson's form written byte for byte, anything like it read, never both copies
gone.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledgermq.broker.storage.state_files import (
    StateFile,
    format_pretty,
    parse_tolerant,
    pretty_slices,
)
from ledgermq.state.document import Behind, Document
from ledgermq.state.errors import StateFileError, StateFileTooLargeError

# As a Java broker wrote it.
JAVA_OFFSETS = (
    '{\n\t"offsetTable":{\n\t\t"%RETRY%cg-billing@cg-billing":{0:0\n\t\t},\n'
    '\t\t"OrderEvents@cg-billing":{0:17,1:20,2:19,3:18\n\t\t}\n\t}\n}'
)
OFFSETS = {
    "offsetTable": {
        "OrderEvents@cg-billing": {0: 17, 1: 20, 2: 19, 3: 18},
        "%RETRY%cg-billing@cg-billing": {0: 0},
    }
}


def test_offsets_are_written_as_java_writes_them() -> None:
    assert format_pretty(OFFSETS) == JAVA_OFFSETS


def test_topics_are_written_as_java_writes_them() -> None:
    value = {"topicConfigTable": {"T": {"perm": 6, "order": False}}, "dataVersion": {}}
    assert format_pretty(value) == (
        '{\n\t"dataVersion":{},\n\t"topicConfigTable":{\n\t\t"T":{\n'
        '\t\t\t"order":false,\n\t\t\t"perm":6\n\t\t}\n\t}\n}'
    )


def test_unquoted_keys_are_read() -> None:
    parsed = parse_tolerant(JAVA_OFFSETS)
    assert parsed["offsetTable"]["OrderEvents@cg-billing"] == {"0": 17, "1": 20, "2": 19, "3": 18}


def test_text_that_looks_like_a_key_stays_text() -> None:
    assert parse_tolerant(r'{"a":"{1:2,3:4}","b\"{5:":6}') == {"a": "{1:2,3:4}", 'b"{5:': 6}


def test_saved_value_comes_back_and_the_old_one_is_kept(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "config" / "topics.json")
    assert file.load() is None
    file.save({"a": 1}, is_durable=True)
    file.save({"a": 2}, is_durable=False)
    assert file.load() == {"a": 2}
    assert (tmp_path / "config" / "topics.json.bak").read_text() == '{\n\t"a":1\n}'


def test_copy_is_one_that_survives_a_power_cut(tmp_path: Path) -> None:
    """Files that were not synced may both be empty then."""
    file = StateFile(tmp_path / "topics.json")
    for number in range(5):
        file.save({"a": number}, is_durable=number in (1, 3))
    assert copy_of(file) == {"a": 3}
    file.save({"a": 9}, is_durable=True)
    file.save({"a": 10}, is_durable=True)
    assert copy_of(file) == {"a": 9}


def copy_of(file: StateFile) -> Any:
    raw = file.read(copy=True)
    assert isinstance(raw, bytes)
    return parse_tolerant(raw.decode())


def test_what_is_written_can_be_read_and_what_cannot_be_read_is_not_written(
    tmp_path: Path,
) -> None:
    """A broker that wrote more than it reads would not start again."""
    file = StateFile(tmp_path / "topics.json", bytes_max=100)
    empty = len(file.encode({"a": ""}))
    largest = {"a": "x" * (100 - empty)}
    for is_durable in (True, False):
        file.save(largest, is_durable=is_durable)
        assert file.load() == largest
        with pytest.raises(StateFileTooLargeError, match=r"topics\.json .* 101 bytes.* are 100"):
            file.save({"a": "x" * (101 - empty)}, is_durable=is_durable)
        assert file.load() == largest
    assert {path.name for path in tmp_path.iterdir()} == {"topics.json", "topics.json.bak"}


@pytest.mark.parametrize("broken", ["{", "[1]", "\x00\x01"])
def test_tool_does_not_read_a_broken_file_or_its_copy(tmp_path: Path, broken: str) -> None:
    file = StateFile(tmp_path / "topics.json")
    file.save({"a": 1}, is_durable=True)
    file.save({"a": 2}, is_durable=False)
    (tmp_path / "topics.json").write_text(broken)
    with pytest.raises(StateFileError, match=r"cannot read .*topics\.json"):
        file.load()


def random_table(rng: Random, count: int) -> dict[str, Any]:
    """Entries of all the shapes that tables have, some with many queues or locks."""
    shapes: tuple[Callable[[int], object], ...] = (
        lambda size: {queue: queue * 7 for queue in range(size)},
        lambda size: {"order": False, "perm": size, "attributes": {"a": "\u20ac"}},
        lambda size: [("t", "b", queue, 'c"') for queue in range(size)],
        lambda size: size,
    )
    sizes = (0, 1, 8, 5000)
    names = sorted({f"{rng.choice(('T', 'group ', chr(0x1F600)))}{n}" for n in range(count)})
    return {name: rng.choice(shapes)(rng.choice(sizes)) for name in names}


@pytest.mark.parametrize("seed", range(40))
def test_slices_are_the_pretty_form_of_the_whole(seed: int) -> None:
    rng = Random(seed)
    counts = [rng.choice((0, 1, 30)) for _ in range(rng.choice((1, 2)))]
    tables = [random_table(rng, count) for count in counts]

    def behind_in(table: dict[str, Any]) -> Behind:
        return lambda after: ((name, table[name]) for name in table if name > after)

    head = rng.choice(({}, {"dataVersion": {"counter": seed}}))
    document = Document(head, tuple((f"t{n}", behind_in(t)) for n, t in enumerate(tables)))
    slices = list(pretty_slices(document, rng.choice((1, 50, 1_000_000))))
    assert "".join(slices) == format_pretty(document.whole())
