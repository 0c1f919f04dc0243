"""A start believes a state file only by its seal: its checksum, its store, and its index."""

import json
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.storage.state_files import StateFile
from ledgermq.broker.storage.state_loading import FoundFile, LoadRule, checksum_of, rule_of
from ledgermq.commitlog.checkpoint import DispatchMark, StateMark
from ledgermq.protocol.file_seal import sealed

NAME = "topics.json"
OWNER = "b/n0/0a"


def content(value: dict[str, Any], index: int, owner: str = OWNER) -> bytes:
    return sealed([json.dumps(value).encode()], owner, index)


def rule(**changes: Any) -> LoadRule:
    """What a start demands whose checkpoint, at entry 9, names the file at entry 7."""
    state = StateMark(store_id="0a", files={NAME: 7})
    mark = DispatchMark(index=9, term=1, end_position=900, timestamp=0, is_clean=True, state=state)
    values: dict[str, Any] = {"mark": mark, "has_mark_file": True, "accepted": {}} | changes
    return rule_of("b/n0", **values)


def find(folder: Path, main: bytes | None, copy: bytes | None = None, **changes: Any) -> FoundFile:
    for name, raw in ((NAME, main), (f"{NAME}.bak", copy)):
        if raw is not None:
            (folder / name).write_bytes(raw)
    return rule(**changes).find(StateFile(folder / NAME))


def test_sealed_file_is_believed_and_stays_upstreams(tmp_path: Path) -> None:
    raw = content({"a": {"b": 1}}, 7)
    found = find(tmp_path, raw)
    assert found.problem is None and found.content is not None and found.content["a"] == {"b": 1}
    # What Apache's reader knows is as it was, and stands first.
    assert list(json.loads(raw)) == ["a", "ledgermqSeal"]


def test_empty_object_can_be_sealed(tmp_path: Path) -> None:
    raw = sealed([b"{}"], OWNER, 7)
    assert json.loads(raw).keys() == {"ledgermqSeal"} and find(tmp_path, raw).problem is None


GOOD = content({"a": 1}, 8)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "it has no seal"),
        (b"\x00\xff noise", "it has no seal"),
        (GOOD[:10], "it has no seal"),
        (GOOD[:-5], "its seal is damaged"),
        (GOOD.replace(b'"a": 1', b'"a": 2'), "changed by another program"),
        (GOOD.replace(b"index=8", b"index=9"), "checksum does not fit"),
        (b'{"a": 1}', "another program wrote it"),
        (content({"a": 1}, 6), "older copy: it stands for entry 6, and the checkpoint needs 7"),
        (content({"a": 1}, 8, "b/n1/0a"), "belongs to the store 'b/n1/0a'"),
        (content({"a": 1}, 8, "b/n0/0b"), "belongs to the store 'b/n0/0b'"),
        (None, "it is missing"),
    ],
)
def test_what_fails_a_check_is_not_believed(tmp_path: Path, raw: bytes | None, why: str) -> None:
    found = find(tmp_path, raw)
    assert found.content is None and found.is_lost
    assert why in (found.problem or "") and NAME in (found.problem or "")


def test_copy_has_to_pass_the_same_checks(tmp_path: Path) -> None:
    old = find(tmp_path, b"noise", content({"a": 1}, 6))
    assert old.is_lost and f"{NAME}.bak: it is an older copy" in (old.problem or "")
    good = find(tmp_path, b"noise", content({"a": 1}, 7))
    assert good.content is not None and good.content["a"] == 1 and not good.is_lost
    # Nothing is lost, and it is said all the same.
    assert "no seal" in (good.problem or "")


def test_file_that_the_checkpoint_does_not_name_may_be_missing(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "queueLocks.json")
    assert rule().find(file) == FoundFile(None)
    # One that is there must not be older than the checkpoint.
    file.write(content({}, 8), is_durable=True)
    assert rule().find(file).is_lost
    file.write(content({}, 9), is_durable=True)
    assert rule().find(file).problem is None


@pytest.mark.parametrize("state", [None, "no checkpoint"])
def test_files_without_seals_are_those_of_an_older_store(tmp_path: Path, state: Any) -> None:
    mark = DispatchMark(index=9, term=1, end_position=900, timestamp=0, is_clean=True)
    changes = {"mark": mark if state is None else None, "has_mark_file": state is None}
    found = find(tmp_path, b'{"a": 1}', **changes)
    assert found.content == {"a": 1} and not found.is_sealed and found.problem is None
    # The copy of a broken file is older, and nothing tells how much.
    assert find(tmp_path, b"{", b'{"a": 1}', **changes).is_lost
    (tmp_path / NAME).unlink()
    # A Java broker that is killed between two steps leaves the copy alone.
    found = find(tmp_path, None, **changes)
    assert found.content == {"a": 1} and "missing" in (found.problem or "")


def test_lost_checkpoint_is_no_reason_to_believe_more(tmp_path: Path) -> None:
    changes = {"mark": None, "has_mark_file": True}
    assert find(tmp_path, b'{"a": 1}', **changes).is_lost
    assert find(tmp_path, content({"a": 1}, 8, "b/n1/0a"), **changes).is_lost
    assert find(tmp_path, GOOD, **changes).problem is None
    (tmp_path / NAME).unlink()
    assert find(tmp_path, None, **changes).is_lost


def test_operator_may_have_a_file_taken_as_it_is(tmp_path: Path) -> None:
    edited = b'{"a": 2}'
    accepted = {NAME: "5b3d3c24"}
    assert find(tmp_path, edited, accepted=accepted).is_lost
    found = find(tmp_path, edited, accepted={NAME: checksum_of(edited)})
    assert found.content == {"a": 2} and found.is_accepted
    (tmp_path / NAME).unlink()
    assert find(tmp_path, None, accepted={NAME: "missing"}) == FoundFile(
        None, is_sealed=False, is_accepted=True
    )


def test_files_that_a_java_broker_wrote_meanwhile_are_believed(tmp_path: Path) -> None:
    found = find(tmp_path, b'{"a": 1}', is_after_java=True)
    assert found.content == {"a": 1} and not found.is_sealed
    # What Java left alone must be whole, and no older than the checkpoint.
    assert find(tmp_path, content({"a": 1}, 6), is_after_java=True).is_lost
    assert find(tmp_path, GOOD[:-5], is_after_java=True).is_lost


def test_files_of_the_other_kind_of_log_need_their_checksum_alone(tmp_path: Path) -> None:
    """A Java broker made a ledger beside the plain log of this directory."""
    file, other = StateFile(tmp_path / NAME), rule_of(None, None, has_mark_file=False, accepted={})
    file.write(content({"a": 1}, 3, "plain/0b"), is_durable=True)
    assert other.find(file).problem is None
    file.write(b'{"a": 1}', is_durable=True)
    assert other.find(file).problem is None
    file.write(GOOD[:-5], is_durable=True)
    assert other.find(file).is_lost
