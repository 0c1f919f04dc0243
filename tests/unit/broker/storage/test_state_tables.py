"""State files are written when their tables changed, and only then."""

import json
from pathlib import Path

import pytest

from ledgermq.broker.config.keys import KEYS
from ledgermq.broker.storage.state_files import FILE_BYTES_MAX, StateFile
from ledgermq.broker.storage.state_tables import StateContents, StateTables
from ledgermq.commitlog import UnreadRecordError
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.next_format import NEXT_FORMATS
from tests.unit.broker.parts import Parts


class Scene:
    """A leader whose tables are as durable as can be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = Parts().lead().state
        self.tables = StateTables(folder, self.state, lambda: 0.0)
        self.tables.save()

    def flush(self) -> set[str]:
        """Makes durable what must be; returns the names of the files that were written."""
        before = self._inodes()
        for file, content in self.tables.take_unsaved():
            file.write(content, is_durable=True)
        return {name for name, inode in self._inodes().items() if before[name] != inode}

    def _inodes(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self.folder.glob("*.json")}

    def loaded(self) -> Parts:
        """What a restart finds."""
        found = Parts()
        StateTables(self.folder, found.state, lambda: 0.0).load()
        return found


ALWAYS = "delayOffset.json"


def save(files: StateContents) -> None:
    """Replaces files between two flushes."""
    for file, content in files:
        file.write(content, is_durable=False)


def test_a_table_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.flush() == {ALWAYS}
    scene.state.put_topic(TopicConfig("A", 2, 3))
    assert scene.flush() == {ALWAYS, "topics.json"}
    scene.state.put_group(SubscriptionGroup("g"))
    assert scene.flush() == {ALWAYS, "subscriptionGroup.json"}
    scene.state.commits.tell("g", "A", 0, 5)
    scene.state.write_offsets()
    assert scene.flush() == {ALWAYS, "consumerOffset.json"}
    assert scene.flush() == {ALWAYS}
    found = scene.loaded().state
    assert found.topics.find("A") == TopicConfig("A", 2, 3)
    assert found.groups.find("g") == SubscriptionGroup("g")
    assert found.offsets.find("g", "A", 0) == 5


def test_what_was_written_between_two_flushes_is_made_durable_by_the_next(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.put_topic(TopicConfig("A", 2, 3))
    save(scene.tables.take_topics_and_groups())
    assert not scene.state.are_topics_unsaved
    assert scene.flush() == {ALWAYS, "topics.json"}
    scene.state.commits.tell("g", "A", 0, 5)
    scene.state.write_offsets()
    save(scene.tables.take_offsets())
    assert scene.flush() == {ALWAYS, "consumerOffset.json"}


def test_offsets_that_are_not_committed_are_in_no_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.commits.tell("g", "A", 0, 5)
    scene.tables.save()
    assert scene.loaded().state.offsets.find("g", "A", 0) is None


def test_what_was_loaded_from_a_copy_is_written_to_the_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.put_topic(TopicConfig("A", 2, 3))
    scene.flush()
    scene.state.put_topic(TopicConfig("B", 2, 3))
    scene.flush()
    (tmp_path / "topics.json").write_text("torn")
    restarted = Parts().state
    tables = StateTables(tmp_path, restarted, lambda: 0.0)
    tables.load()
    tables.save()
    content = StateFile(tmp_path / "topics.json").load()
    assert content is not None
    assert "A" in content["topicConfigTable"]
    assert "B" not in content["topicConfigTable"]


def test_offsets_lie_in_upstreams_other_file_when_light_queues_are_on(tmp_path: Path) -> None:
    before = Scene(tmp_path)
    before.state.commits.tell("g", "A", 0, 5)
    before.state.write_offsets()
    before.tables.save()
    parts = Parts(enableLmq="true").lead()
    tables = StateTables(tmp_path, parts.state, lambda: 0.0)
    tables.load()
    assert parts.state.offsets.find("g", "A", 0) == 5
    parts.state.commits.tell("%LMQ%g", "A", 0, 6)
    parts.state.write_offsets()
    tables.save()
    assert '"lmqOffsetTable"' in (tmp_path / "lmqConsumerOffset.json").read_text()
    again = Parts(enableLmq="true")
    StateTables(tmp_path, again.state, lambda: 0.0).load()
    assert again.state.offsets.find("%LMQ%g", "A", 0) == 6
    assert again.state.offsets.find("g", "A", 0) == 5


class TooLarge:
    """A leader with more topics than its file may hold, until some are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = Parts().lead()
        self.tables = StateTables(
            folder, self.parts.state, lambda: float(self.parts.now_ms), bytes_max=8000
        )
        assert self.tables.save()
        for number in range(100):
            self.parts.state.put_topic(TopicConfig(f"T{number}"))

    def topics_on_disk(self) -> int:
        table = json.loads((self.folder / "topics.json").read_text())["topicConfigTable"]
        return sum(name.startswith("T") and name != "TBW102" for name in table)


def test_file_that_a_start_would_not_read_is_not_written_and_operators_see_it(
    tmp_path: Path,
) -> None:
    scene = TooLarge(tmp_path)
    state, tables = scene.parts.state, scene.tables
    assert tables.alarm is None
    state.put_group(SubscriptionGroup("g"))
    save(tables.take_topics_and_groups())
    assert scene.topics_on_disk() == 0
    assert "topics.json" in (tables.alarm or "") and "allowed are 8000" in (tables.alarm or "")
    # The other files are written as always, and this one is not forgotten.
    assert '"g"' in (tmp_path / "subscriptionGroup.json").read_text()
    assert state.are_topics_unsaved
    assert tables.take_unsaved() is None and not tables.save()
    assert state.are_topics_unsaved
    for number in range(90):
        state.remove_topic(f"T{number}")
    scene.parts.now_ms += 60_000
    save(tables.take_topics_and_groups())
    assert scene.topics_on_disk() == 10
    assert tables.alarm is None and not state.are_topics_unsaved and tables.save()


def test_table_whose_file_is_too_large_is_not_encoded_each_second(tmp_path: Path) -> None:
    scene = TooLarge(tmp_path)
    encoded = 0
    to_json = scene.parts.state.topics.to_json

    def counted() -> dict[str, object]:
        nonlocal encoded
        encoded += 1
        return to_json()

    scene.parts.state.topics.to_json = counted  # type: ignore[method-assign]
    for _ in range(600):
        scene.parts.now_ms += 1000
        save(scene.tables.take_topics_and_groups())
    assert 10 <= encoded <= 20 and scene.tables.is_waiting


def test_tables_are_bounded_so_that_their_files_can_be_written() -> None:
    """Each bound with the longest names and numbers there may be."""
    key_max = {key.field: key.high for key in KEYS if key.field in ("topics_max", "groups_max")}
    negative = -(2**31)
    topic = TopicConfig("t" * 127, 65_536, 65_536, 7, "SINGLE_TAG", negative, False)
    group = SubscriptionGroup(
        "g" * 255, False, False, False, negative, negative, negative, negative, False
    )
    for count, name, entry in (
        (key_max["topics_max"], topic.name, topic.to_json()),
        (key_max["groups_max"], group.name, group.to_json()),
    ):
        one = len(StateFile.encode({"table": {name: entry}}))
        assert one * count <= FILE_BYTES_MAX


def test_offsets_and_locks_take_no_more_than_they_count(tmp_path: Path) -> None:
    parts = Parts()
    offsets, locks = parts.state.offsets, parts.state.locks
    for number, name in enumerate(("a", "b" * 200, 'quotes"\\', "\x01\u00fc\u20ac\U0001f600")):
        for queue_id in (0, 65_535):
            offsets.put({f"{name}@g{number}": {queue_id: 2**63 - 1}})
        rows = [(name, f"broker-{name}", n, f"client-{name}") for n in (0, 2**63 - 1)]
        locks.put({f"g{number}": rows})
    for table, members in ((offsets, "offsetTable"), (locks, "lockTable")):
        around = len(StateFile.encode({members: {}}))
        written = len(StateFile.encode(table.to_json())) - around
        # Texts with escapes are longer in the records of the log.
        recorded = len(json.dumps(table.to_json()[members], separators=(",", ":")))
        assert max(written, recorded) <= table.json_bytes <= 2 * recorded


def test_what_did_not_get_to_the_disk_is_written_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.put_topic(TopicConfig("A", 2, 3))
    files = scene.tables.take_topics_and_groups()
    assert [str(file) for file, _ in files] == [str(tmp_path / "topics.json")]
    scene.tables.take_back(files)
    assert scene.flush() == {ALWAYS, "topics.json"}


def test_the_format_of_the_state_is_durable_before_the_next_mark(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.formats.note(1)
    assert scene.flush() == {ALWAYS}
    scene.state.formats.note(2)
    assert scene.flush() == {ALWAYS, "stateFormat.json"}
    newer = Parts(formats=NEXT_FORMATS)
    StateTables(tmp_path, newer.state, lambda: 0.0).load()
    assert newer.state.formats.applied == 2
    older = Parts()
    with pytest.raises(UnreadRecordError):
        StateTables(tmp_path, older.state, lambda: 0.0).load()
    # It did not read the tables, which may be in another form, too.
    assert len(older.state.topics) == 0
