"""State files are written when their tables changed, and only then."""

import json
from pathlib import Path

import pytest

from ledgermq.broker.config.keys import KEYS
from ledgermq.broker.storage.state_files import FILE_BYTES_MAX, StateFile, pretty_slices
from ledgermq.broker.storage.state_tables import Encoding, StateTables
from ledgermq.commitlog import UnreadRecordError
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.next_format import NEXT_FORMATS
from tests.unit.broker.parts import Parts


def tables_in(folder: Path, state: BrokerState, **limits: int) -> StateTables:
    """The tables of a state, and their files in a folder."""
    return StateTables(state, lambda name: StateFile(folder / name), lambda: 0.0, **limits)


class Scene:
    """A leader whose tables are as durable as can be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = Parts().lead().state
        self.tables = tables_in(folder, self.state)
        self.tables.save()

    def flush(self) -> set[str]:
        """Makes durable what must be; returns the names of the files that were written."""
        before = self._inodes()
        save(self.tables.begin_flush(), is_durable=True)
        return {name for name, inode in self._inodes().items() if before[name] != inode}

    def _inodes(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self.folder.glob("*.json")}

    def loaded(self) -> Parts:
        """What a restart finds."""
        found = Parts()
        tables_in(self.folder, found.state).load()
        return found


ALWAYS = "delayOffset.json"
TOPICS_AND_GROUPS = ("topics", "groups")


def save(encoding: Encoding | None, *, is_durable: bool = False) -> None:
    """Encodes what is left, and replaces the files."""
    if encoding is not None:
        encoding.finish()
        for file, content in encoding.contents:
            file.write(content, is_durable=is_durable)


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
    save(scene.tables.begin_save(TOPICS_AND_GROUPS))
    assert "topics" not in scene.state.unsaved
    assert scene.flush() == {ALWAYS, "topics.json"}
    scene.state.commits.tell("g", "A", 0, 5)
    scene.state.write_offsets()
    save(scene.tables.begin_save(("offsets",)))
    assert scene.flush() == {ALWAYS, "consumerOffset.json"}


def test_offsets_that_are_not_committed_are_in_no_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.commits.tell("g", "A", 0, 5)
    scene.tables.save()
    assert scene.loaded().state.offsets.find("g", "A", 0) is None


def test_offsets_lie_in_upstreams_other_file_when_light_queues_are_on(tmp_path: Path) -> None:
    before = Scene(tmp_path)
    before.state.commits.tell("g", "A", 0, 5)
    before.state.write_offsets()
    before.tables.save()
    parts = Parts(enableLmq="true").lead()
    tables = tables_in(tmp_path, parts.state)
    tables.load()
    assert parts.state.offsets.find("g", "A", 0) == 5
    parts.state.commits.tell("%LMQ%g", "A", 0, 6)
    parts.state.write_offsets()
    tables.save()
    assert '"lmqOffsetTable"' in (tmp_path / "lmqConsumerOffset.json").read_text()
    again = Parts(enableLmq="true")
    tables_in(tmp_path, again.state).load()
    assert again.state.offsets.find("%LMQ%g", "A", 0) == 6
    assert again.state.offsets.find("g", "A", 0) == 5


class TooLarge:
    """A leader with more topics than its file may hold, until some are removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = Parts().lead()
        self.tables = StateTables(
            self.parts.state,
            lambda name: StateFile(folder / name, bytes_max=8000),
            lambda: float(self.parts.now_ms),
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
    save(tables.begin_save(TOPICS_AND_GROUPS))
    assert scene.topics_on_disk() == 0
    assert "topics.json" in (tables.alarm or "") and "allowed are 8000" in (tables.alarm or "")
    # The other files are written as always, and this one is not forgotten.
    assert '"g"' in (tmp_path / "subscriptionGroup.json").read_text()
    assert "topics" in state.unsaved
    assert not tables.save()
    assert "topics" in state.unsaved
    for number in range(90):
        state.remove_topic(f"T{number}")
    scene.parts.now_ms += 60_000
    save(tables.begin_save(TOPICS_AND_GROUPS))
    assert scene.topics_on_disk() == 10
    assert tables.alarm is None and "topics" not in state.unsaved and tables.save()


def test_table_whose_file_is_too_large_is_not_encoded_each_second(tmp_path: Path) -> None:
    scene = TooLarge(tmp_path)
    encoded = 0
    for _ in range(600):
        scene.parts.now_ms += 1000
        encoding = scene.tables.begin_save(TOPICS_AND_GROUPS)
        encoded += encoding is not None
        save(encoding)
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
        written = len(StateFile.encode(table.document().whole())) - around
        # Texts with escapes are longer in the records of the log.
        recorded = len(json.dumps(table.document().whole()[members], separators=(",", ":")))
        assert max(written, recorded) <= table.json_bytes <= 2 * recorded


def test_what_did_not_get_to_the_disk_is_written_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.put_topic(TopicConfig("A", 2, 3))
    encoding = scene.tables.begin_save(TOPICS_AND_GROUPS)
    assert encoding is not None
    encoding.finish()
    assert [str(file) for file, _ in encoding.contents] == [str(tmp_path / "topics.json")]
    encoding.take_back()
    # Not each second, but by the next flush.
    assert scene.tables.begin_save(TOPICS_AND_GROUPS) is None
    assert scene.flush() == {ALWAYS, "topics.json"}
    scene.state.put_topic(TopicConfig("B", 2, 3))
    # One that is given up half way was never there.
    scene.tables.begin_flush().take_back()
    assert scene.flush() == {ALWAYS, "topics.json"}


def test_the_format_of_the_state_is_durable_before_the_next_mark(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.formats.note(1)
    assert scene.flush() == {ALWAYS}
    scene.state.formats.note(2)
    assert scene.flush() == {ALWAYS, "stateFormat.json"}
    newer = Parts(formats=NEXT_FORMATS)
    tables_in(tmp_path, newer.state).load()
    assert newer.state.formats.applied == 2
    older = Parts()
    with pytest.raises(UnreadRecordError):
        tables_in(tmp_path, older.state).load()
    # It did not read the tables, which may be in another form, too.
    assert len(older.state.topics) == 0


def test_the_format_goes_before_tables_that_are_in_it(tmp_path: Path) -> None:
    """Also between two flushes, and where the first record of it comes while they are encoded."""
    scene = Scene(tmp_path)
    scene.state.put_topic(TopicConfig("A", 2, 3))
    encoding = scene.tables.begin_save(TOPICS_AND_GROUPS)
    assert encoding is not None
    scene.state.formats.note(2)
    encoding.finish()
    names = [Path(str(file)).name for file, _ in encoding.contents]
    assert names == ["stateFormat.json", "topics.json"]


def test_a_table_may_change_while_it_is_encoded(tmp_path: Path) -> None:
    """The file has all that was there when it began, and the table counts as unsaved again."""
    state = Parts().lead().state
    names = [f"T{number:03}" for number in range(100)]
    for name in names:
        state.put_topic(TopicConfig(name, 1, 1))
    tables = tables_in(tmp_path, state, slice_chars=1000)
    encoding = tables.begin_flush()
    assert "topics" not in state.unsaved
    for _ in range(5):
        encoding.step()
    assert not encoding.is_done
    state.remove_topic("T000")
    state.put_topic(TopicConfig("T0005", 1, 1))
    state.remove_topic("T099")
    state.put_topic(TopicConfig("T0985", 1, 1))
    assert "topics" in state.unsaved
    save(encoding, is_durable=True)
    content = StateFile(tmp_path / "topics.json").load()
    assert content is not None
    found = {name for name in content["topicConfigTable"] if name.startswith("T0")}
    # Before the place of the encoding as it was, behind it as it is.
    assert found == {*names, "T0985"} - {"T099"}
    save(tables.begin_flush(), is_durable=True)
    again = Parts().state
    tables_in(tmp_path, again).load()
    assert again.topics.all() == state.topics.all()
    assert again.topics.version == state.topics.version


def test_no_slice_is_much_longer_than_asked_for(tmp_path: Path) -> None:
    state = Parts().lead().state
    state.offsets.put({f"topic-{n}@group": dict.fromkeys(range(8), n) for n in range(2000)})
    state.offsets.put({"wide@group": {q: 2**40 + q for q in range(20_000)}})
    state.locks.put({"group": [("topic", "broker", q, f"client-{q}") for q in range(20_000)]})
    state.unsaved |= {"offsets", "locks"}
    longest = 0
    for table in (state.offsets, state.locks):
        lengths = [len(text) for text in pretty_slices(table.document(), 10_000)]
        longest = max(longest, *lengths)
    assert longest < 2000 * 60
    encoding = tables_in(tmp_path, state, slice_chars=10_000).begin_flush()
    steps = 0
    while not encoding.is_done:
        encoding.step()
        steps += 1
    assert steps > 30


def test_half_a_character_that_a_client_sent_ends_no_flush(tmp_path: Path) -> None:
    state = Parts().lead().state
    half = "a\ud800"
    state.locks.put({"group": [("topic", half, 0, half)]})
    state.offsets.put({f"{half}@group": {0: 5}})
    state.unsaved |= {"locks", "offsets"}
    save(tables_in(tmp_path, state).begin_flush(), is_durable=True)
    again = Parts().state
    tables_in(tmp_path, again).load()
    # No other writer carries it.
    assert len(again.locks) == len(again.offsets) == 0
