"""The key-value table and its file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from ledgermq.namesrv.errors import BusyError, ConfigItemNotFoundError, LimitError
from ledgermq.namesrv.kv_file import FILE_BYTES_MAX, KvFile
from ledgermq.namesrv.kv_table import CHANGES_MAX, KvTable
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.file_seal import SEAL_BYTES_MAX


def make_table(path: Path, **changes: int) -> KvTable:
    """One whose thread is done at once."""
    table = KvTable(path, maybeDeferred, Clock(), **changes)
    table.load()
    return table


class SlowThread:
    """A thread that runs what it was given when it is told to."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], None], Deferred[None]]] = []
        self.runs_count = 0

    def __call__(self, function: Callable[[], None]) -> Deferred[None]:
        self.work.append((function, Deferred()))
        return self.work[-1][1]

    def run(self) -> None:
        function, done = self.work.pop(0)
        assert not self.work, "two writes at once"
        self.runs_count += 1
        maybeDeferred(function).chainDeferred(done)


def errors_of(deferred: Deferred[None]) -> list[type[Exception]]:
    errors: list[type[Exception]] = []
    deferred.addErrback(lambda failure: errors.append(type(failure.value)))
    return errors


def test_items_survive_a_restart_in_upstreams_form(tmp_path: Path) -> None:
    path = tmp_path / "made" / "kvConfig.json"
    table = make_table(path)
    table.put("NS", "k", "wert-ü")
    table.put("NS", "gone", "x")
    table.delete("NS", "gone")
    value = json.loads(path.read_text())
    # Upstream skips it.
    assert value.pop("ledgermqSeal") and value == {"configTable": {"NS": {"k": "wert-ü"}}}
    again = make_table(path)
    assert again.get("NS", "k") == "wert-ü"
    assert again.items("NS") == {"k": "wert-ü"}


def test_many_items_of_many_namespaces_survive(tmp_path: Path) -> None:
    thread = SlowThread()
    table = KvTable(tmp_path / "kv.json", thread, Clock())
    for number in range(1700):
        table.put(f"ns-{number % 3}", f'k"{number}', "v\n")
    thread.run()
    thread.run()
    again = make_table(tmp_path / "kv.json")
    assert sum(len(again.items(f"ns-{n}")) for n in range(3)) == 1700
    assert again.get("ns-1", 'k"1699') == "v\n"


def test_file_is_for_its_owner_only_and_a_link_in_its_place_is_not_followed(
    tmp_path: Path,
) -> None:
    path, victim = tmp_path / "kv.json", tmp_path / "victim"
    victim.write_text("precious")
    path.with_name("kv.json.tmp").symlink_to(victim)
    make_table(path).put("NS", "k", "v")
    assert path.stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "precious"


def test_missing_items_are_named(tmp_path: Path) -> None:
    table = make_table(tmp_path / "kv.json")
    with pytest.raises(ConfigItemNotFoundError, match="No config item, Namespace: NS Key: k"):
        table.get("NS", "k")
    with pytest.raises(ConfigItemNotFoundError, match="No config item, Namespace: NS$"):
        table.items("NS")


@pytest.mark.parametrize(
    "text", ['{"configTable": 3}', '{"configTable": {"NS": 3}}', "[]", "{", "[" * 200_000]
)
def test_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kv.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        make_table(path)


def test_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    with path.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + SEAL_BYTES_MAX + 1)
    with pytest.raises(OSError, match="more than"):
        make_table(path)


@pytest.mark.timeout(20)
def test_a_start_waits_for_no_pipe(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    os.mkfifo(path)
    with pytest.raises(OSError, match="no regular file"):
        make_table(path)


def test_failed_write_is_told_and_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    table = make_table(path)
    table.put("NS", "k", "1")
    path.with_name("kv.json.tmp").mkdir()
    for change in (table.put("NS", "k", "2"), table.put("N2", "k", "2"), table.delete("NS", "k")):
        assert [issubclass(kind, OSError) for kind in errors_of(change)] == [True]
    assert table.get("NS", "k") == "1"
    path.with_name("kv.json.tmp").rmdir()
    table.put("NS", "k2", "3")
    assert make_table(path).items("NS") == {"k": "1", "k2": "3"}


def test_change_is_seen_and_answered_when_it_is_durable_not_before(tmp_path: Path) -> None:
    thread, answers = SlowThread(), list[str]()
    table = KvTable(tmp_path / "kv.json", thread, Clock())
    table.put("NS", "a", "1").addCallback(lambda _: answers.append("a"))
    for number in range(100):
        table.put("NS", f"b{number}", "2").addCallback(lambda _: answers.append("b"))
    table.delete("NS", "a").addCallback(lambda _: answers.append("gone"))
    settled = table.stop()
    assert (answers, table.find("NS", "a")) == ([], None)
    thread.run()
    assert (answers, table.items("NS")) == (["a"], {"a": "1"})
    # All that came meanwhile is one write.
    thread.run()
    assert answers == ["a", *["b"] * 100, "gone"] and thread.runs_count == 2
    assert len(table.items("NS")) == 100 and settled.called and not thread.work


def test_the_next_write_waits_in_proportion_to_what_the_last_one_took(tmp_path: Path) -> None:
    """But not at the end of the program, which leaves no call behind."""
    clock, thread, answers = Clock(), SlowThread(), list[str]()
    table = KvTable(tmp_path / "kv.json", thread, clock)
    table.put("NS", "a", "1")
    clock.advance(0.02)
    thread.run()
    for key in ("b", "c"):
        table.put("NS", key, "1").addCallback(answers.append)
    clock.advance(0.079)
    assert not thread.work
    clock.advance(0.002)
    clock.advance(100)
    thread.run()
    assert len(answers) == 2
    table.put("NS", "d", "1")
    clock.advance(0.9)
    assert not thread.work
    stopped = table.stop()
    thread.run()
    assert stopped.called and not clock.getDelayedCalls()
    assert len(make_table(tmp_path / "kv.json").items("NS")) == 4


def test_changes_that_wait_for_a_write_that_fails_fail_with_it(tmp_path: Path) -> None:
    path, thread = tmp_path / "kv.json", SlowThread()
    table = KvTable(path, thread, Clock())
    path.with_name("kv.json.tmp").mkdir()
    failed = [errors_of(table.put("NS", key, "1")) for key in ("a", "b")]
    thread.run()
    assert [len(errors) for errors in failed] == [1, 1] and not thread.work
    path.with_name("kv.json.tmp").rmdir()
    table.put("NS", "c", "1")
    thread.run()
    assert make_table(path).items("NS") == {"c": "1"}


def test_changes_that_wait_are_bounded(tmp_path: Path) -> None:
    table = KvTable(tmp_path / "kv.json", SlowThread(), Clock())
    with pytest.raises(BusyError, match=f"{CHANGES_MAX} changes"):
        for number in range(CHANGES_MAX + 2):
            table.put("NS", "k", str(number))


def test_table_stays_smaller_than_what_a_start_reads(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    table = make_table(path, bytes_max=500)
    with pytest.raises(LimitError, match=r"bytes of the key-value file: 5\d\d .* limit of 500"):
        for number in range(100):
            table.put("NS", f"key-{number}", "value")
    count = len(table.items("NS"))
    assert count > 10 and path.stat().st_size <= 500 + SEAL_BYTES_MAX
    with pytest.raises(LimitError):
        table.put("NS", "key-0", "x" * 500)
    again = make_table(path, bytes_max=500)
    assert again.items("NS") == table.items("NS") and again.get("NS", "key-0") == "value"
    again.delete("NS", "key-0")
    assert len(again.items("NS")) == count - 1


def test_what_is_deleted_makes_room_for_as_much(tmp_path: Path) -> None:
    """Also namespaces, of which an empty one would stay for ever."""
    table = make_table(tmp_path / "kv.json", bytes_max=300)
    for number in range(100):
        table.put(f"space-{number}", "k", "v" * 100)
        table.put(f"space-{number}", "k", "v" * 120)
        table.delete(f"space-{number}", "k")
    with pytest.raises(ConfigItemNotFoundError):
        table.items("space-7")


@pytest.mark.parametrize(
    ("namespace", "key", "value", "words"),
    [
        ("", "k", "v", "namespace is ''"),
        ("NS", "a\nb", "v", r"key is 'a\\nb', allowed: .*1 to 300 bytes"),
        ("NS", "k" * 301, "v", "key is .*length 301"),
        ("NS", "\ud800", "v", "key is "),
        ("NS", "k", "\ud800", "value is .*UTF-8"),
        ("NS", "k", "v" * 32_769, "value is .*at most 32768 bytes"),
    ],
)
def test_text_that_may_not_be_kept_is_refused_with_its_limit(
    tmp_path: Path, namespace: str, key: str, value: str, words: str
) -> None:
    table = make_table(tmp_path / "kv.json")
    with pytest.raises(RemoteProtocolError, match=words):
        table.put(namespace, key, value)
    assert not (tmp_path / "kv.json").exists()


@pytest.mark.parametrize("name", ["kv.json", "kv.json.copy"])
@pytest.mark.parametrize("damage", [b"", b"noise", None, "older"])
def test_one_of_two_files_may_be_damaged(
    tmp_path: Path, name: str, damage: bytes | str | None
) -> None:
    table = make_table(tmp_path / "kv.json")
    table.put("NS", "k", "1")
    older = (tmp_path / name).read_bytes()
    table.put("NS", "k", "2")
    if damage is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(older if isinstance(damage, str) else damage)
    file = KvFile(tmp_path / "kv.json")
    assert file.read() == {"NS": {"k": "2"}}
    (note,) = file.notes
    assert f"{name}: " in note
    # The next change writes both.
    make_table(tmp_path / "kv.json").put("NS", "k", "3")
    assert KvFile(tmp_path / "kv.json").read() == {"NS": {"k": "3"}}


def test_two_damaged_files_and_those_of_another_server_are_refused(tmp_path: Path) -> None:
    for name in ("own", "another"):
        (tmp_path / name).mkdir()
        make_table(tmp_path / name / "kv.json").put("NS", "k", name)
    path = tmp_path / "own" / "kv.json"
    good = path.read_bytes()
    path.write_bytes((tmp_path / "another" / "kv.json").read_bytes())
    with pytest.raises(ValueError, match="two different programs: remove the wrong one"):
        make_table(path)
    path.write_bytes(good[:-30])
    path.with_name("kv.json.copy").write_bytes(b"noise")
    with pytest.raises(ValueError, match=r"kv.json: its seal is damaged; .*copy: no seal"):
        make_table(path)
