"""State files are written when their tables changed, and only then."""

from pathlib import Path

from ledgermq.broker.service.state_tables import StateTables
from ledgermq.broker.state_files import StateFile
from ledgermq.broker.subscriptions import SubscriptionGroup
from ledgermq.broker.topics import TopicConfig
from tests.unit.broker.parts import Parts


class Scene:
    """A leader whose tables are as durable as can be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = Parts().lead().state
        self.tables = StateTables(folder, self.state)
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
        StateTables(self.folder, found.state).load()
        return found


ALWAYS = "delayOffset.json"


def test_a_table_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.flush() == {ALWAYS}
    scene.state.put_topic(TopicConfig("A", 2, 3))
    assert scene.flush() == {ALWAYS, "topics.json"}
    scene.state.put_group(SubscriptionGroup("g"))
    assert scene.flush() == {ALWAYS, "subscriptionGroup.json"}
    scene.state.offsets.commit("g", "A", 0, 5)
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
    scene.tables.save_topics_and_groups()
    assert not scene.state.are_topics_unsaved
    assert scene.flush() == {ALWAYS, "topics.json"}
    scene.state.offsets.commit("g", "A", 0, 5)
    scene.state.write_offsets()
    scene.tables.save_offsets()
    assert scene.flush() == {ALWAYS, "consumerOffset.json"}


def test_offsets_that_only_a_snapshot_took_over_are_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.offsets.commit("g", "A", 0, 5)
    scene.state.write_snapshot()
    assert scene.flush() == {ALWAYS, "consumerOffset.json"}


def test_offsets_that_are_in_no_record_yet_are_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.offsets.commit("g", "A", 0, 5)
    scene.tables.save()
    assert scene.loaded().state.offsets.find("g", "A", 0) == 5


def test_what_was_loaded_from_a_copy_is_written_to_the_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state.put_topic(TopicConfig("A", 2, 3))
    scene.flush()
    scene.state.put_topic(TopicConfig("B", 2, 3))
    scene.flush()
    (tmp_path / "topics.json").write_text("torn")
    restarted = Parts().state
    tables = StateTables(tmp_path, restarted)
    tables.load()
    tables.save()
    content = StateFile(tmp_path / "topics.json").load()
    assert content is not None
    assert "A" in content["topicConfigTable"]
    assert "B" not in content["topicConfigTable"]


def test_offsets_lie_in_upstreams_other_file_when_light_queues_are_on(tmp_path: Path) -> None:
    before = Scene(tmp_path)
    before.state.offsets.commit("g", "A", 0, 5)
    before.tables.save()
    parts = Parts(enableLmq="true").lead()
    tables = StateTables(tmp_path, parts.state)
    tables.load()
    assert parts.state.offsets.find("g", "A", 0) == 5
    parts.state.offsets.commit("%LMQ%g", "A", 0, 6)
    tables.save()
    assert '"lmqOffsetTable"' in (tmp_path / "lmqConsumerOffset.json").read_text()
    again = Parts(enableLmq="true")
    StateTables(tmp_path, again.state).load()
    assert again.state.offsets.find("%LMQ%g", "A", 0) == 6
    assert again.state.offsets.find("g", "A", 0) == 5
