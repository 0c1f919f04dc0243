"""Term and vote on disk: upstream's text, and what missing or damaged files mean."""

from pathlib import Path

import pytest

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.storage import HardState, VoteStore
from ledgermq.dledger.store.errors import DiskFullError, MembershipError, VoteStateLostError
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.text_file import parse_lines, seal, unseal
from ledgermq.dledger.store.vote_file import VoteFile
from ledgermq.testing.simulation.disk import MachineStoppedError
from tests.fault.lossy_disk import new_disk, stop_after

# Operations of a save: the directory, and four for each of identity, currterm.bak and currterm.
_SAVE_STEPS = 13
_FIRST_SAVE_STEPS = 9


def make(directory: Path, self_id: str = "n0", group: str = "g") -> VoteFile:
    return VoteFile(RealFileSystem(), str(directory), self_id, group=group)


def test_a_new_directory_has_no_state(tmp_path: Path) -> None:
    store: VoteStore = make(tmp_path / "dledger-n0")
    assert store.load() is None


def test_a_saved_state_is_loaded(tmp_path: Path) -> None:
    held = Birth("0f" * 16, ("n0", "n1"))
    births = [HardState(3, None, held), HardState(3, "n1", held.agreed(), has_voted=True)]
    for state in (HardState(1, "n0"), HardState(2, None), HardState(2, "n1"), *births):
        make(tmp_path).save(state)
        assert make(tmp_path).load() == state


def test_currterm_has_upstreams_text(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.save(HardState(1, "n0"))
    assert (tmp_path / "currterm").read_bytes() == b"voteLeader=n0\ncurrTerm=1\n"
    store.save(HardState(2, None))
    assert (tmp_path / "currterm").read_bytes() == b"voteLeader=\ncurrTerm=2\n"
    assert (tmp_path / "currterm.bak").read_bytes() == b"voteLeader=n0\ncurrTerm=1\n"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (b"voteLeader=n1\ncurrTerm=7\n", HardState(7, "n1")),
        (b"currTerm=7\nvoteLeader=\n", HardState(7, None)),
        (b"#a comment\r\ncurrTerm = 7\r\n", HardState(7, None)),
    ],
)
def test_the_state_that_java_wrote_is_taken(tmp_path: Path, text: bytes, state: HardState) -> None:
    (tmp_path / "currterm").write_bytes(text)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ("0" * 20)).write_bytes(b"entries")
    assert make(tmp_path).load() == state


def test_the_birth_outlives_a_term_of_java(tmp_path: Path) -> None:
    birth = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)
    make(tmp_path).save(HardState(3, "n0", birth, has_voted=True))
    (tmp_path / "currterm").write_bytes(b"voteLeader=n2\ncurrTerm=5\n")
    assert make(tmp_path).load() == HardState(5, "n2", birth, has_voted=True)
    (tmp_path / "currterm").unlink()
    (tmp_path / "currterm.bak").unlink(missing_ok=True)
    assert make(tmp_path).load() == HardState(3, "n0", birth, has_voted=True)


def test_a_birth_that_is_none_is_lost_state(tmp_path: Path) -> None:
    make(tmp_path).save(HardState(3, "n0", Birth("0f" * 16, ("n0",))))
    path = tmp_path / "identity"
    values = unseal(path.read_bytes())
    assert values is not None
    path.write_bytes(seal({**values, "birth": "yesterday"}))
    with pytest.raises(VoteStateLostError, match="32 hex digits"):
        make(tmp_path).load()


def test_java_may_run_in_between(tmp_path: Path) -> None:
    make(tmp_path).save(HardState(3, "n0"))
    (tmp_path / "currterm").write_bytes(b"voteLeader=n2\ncurrTerm=5\n")
    assert make(tmp_path).load() == HardState(5, "n2")
    (tmp_path / "currterm").write_bytes(b"voteLeader=n2\ncurrTerm=2\n")
    assert make(tmp_path).load() == HardState(3, "n0")


@pytest.mark.parametrize("used", ["data/00000000000000000000", "checkpoint", "start", "durable"])
def test_a_missing_state_in_a_used_store_is_lost(tmp_path: Path, used: str) -> None:
    (tmp_path / used).parent.mkdir(exist_ok=True)
    (tmp_path / used).write_bytes(b"x")
    with pytest.raises(VoteStateLostError):
        make(tmp_path).load()


def test_a_stop_of_java_between_delete_and_rename_is_lost(tmp_path: Path) -> None:
    (tmp_path / "currterm.bak").write_bytes(b"voteLeader=n1\ncurrTerm=7\n")
    with pytest.raises(VoteStateLostError):
        make(tmp_path).load()
    make(tmp_path).save(HardState(3, "n0"))
    (tmp_path / "currterm").unlink()
    (tmp_path / "currterm.bak").unlink()
    assert make(tmp_path).load() == HardState(3, "n0")
    (tmp_path / "currterm").unlink()
    (tmp_path / "currterm.tmp").write_bytes(b"voteLeader=n1\ncurrTerm=7\n")
    with pytest.raises(VoteStateLostError):
        make(tmp_path).load()


@pytest.mark.parametrize("name", ["identity", "currterm"])
@pytest.mark.parametrize("content", [b"", b"garbage", bytes(64)])
def test_a_damaged_file_is_lost(tmp_path: Path, name: str, content: bytes) -> None:
    make(tmp_path).save(HardState(3, "n0"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VoteStateLostError) as caught:
        make(tmp_path).load()
    assert caught.value.path == str(tmp_path / name)


def test_no_flipped_bit_of_identity_passes(tmp_path: Path) -> None:
    make(tmp_path).save(HardState(3, "n0"))
    content = (tmp_path / "identity").read_bytes()
    for at in range(len(content)):
        (tmp_path / "identity").write_bytes(
            content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]
        )
        with pytest.raises(VoteStateLostError):
            make(tmp_path).load()


@pytest.mark.parametrize(
    ("self_id", "group", "key"), [("n1", "g", "dLegerSelfId"), ("n0", "h", "dLegerGroup")]
)
def test_the_directory_of_another_member_is_refused(
    tmp_path: Path, self_id: str, group: str, key: str
) -> None:
    make(tmp_path).save(HardState(3, "n0"))
    with pytest.raises(MembershipError) as caught:
        make(tmp_path, self_id, group).load()
    assert caught.value.key == key


MEMBERS = ("n0", "n1", "n2")
OTHER_LISTS = [("n0",), ("n0", "n1"), ("n0", "n1", "n9"), ("n0", "n1", "n2", "n3", "n4")]


def with_members(tmp_path: Path, members: tuple[str, ...]) -> VoteFile:
    return VoteFile(RealFileSystem(), str(tmp_path), "n0", group="g", members=members)


@pytest.mark.parametrize("is_agreed", [True, False])
@pytest.mark.parametrize("configured", OTHER_LISTS)
def test_another_member_list_is_refused(
    tmp_path: Path, configured: tuple[str, ...], is_agreed: bool
) -> None:
    state = HardState(3, None, Birth("0f" * 16, MEMBERS, is_agreed))
    with_members(tmp_path, MEMBERS).save(state)
    before = (tmp_path / "identity").read_bytes()
    with pytest.raises(MembershipError) as caught:
        with_members(tmp_path, configured).load()
    assert str(caught.value).startswith("cannot start: the members of this group are n0, n1, n2 (")
    assert f"has {', '.join(configured)} (key dLegerPeers)" in str(caught.value)
    assert (tmp_path / "identity").read_bytes() == before
    assert with_members(tmp_path, ("n2", "n1", "n0")).load() == state


def save_without_list(tmp_path: Path, waited_for: str) -> None:
    """As programs wrote it that kept no member list."""
    lines = {"group": "g", "self_id": "n0", "term": "3", "voted_for": "", "has_voted": "0"}
    birth = {"birth": "0f" * 16, "birth_members": waited_for, "birth_agreed": "1"}
    (tmp_path / "identity").write_bytes(seal(lines | birth))
    (tmp_path / "currterm").write_bytes(b"voteLeader=\ncurrTerm=3\n")


@pytest.mark.parametrize(
    ("waited_for", "members"), [("n0;n1;n2", MEMBERS), ("n0;n1", ()), ("n1;n2", ())]
)
def test_an_identity_without_a_list_takes_one(
    tmp_path: Path, waited_for: str, members: tuple[str, ...]
) -> None:
    save_without_list(tmp_path, waited_for)
    file = with_members(tmp_path, MEMBERS)
    state = file.load()
    assert state == HardState(3, None, Birth("0f" * 16, members, is_agreed=True))
    # Until the list is agreed, what is known of it stays on disk.
    file.save(state)
    assert with_members(tmp_path, MEMBERS).load() == state
    with pytest.raises(MembershipError):
        with_members(tmp_path, ("n0",)).load()


def test_an_identity_without_a_list_shows_some_members(tmp_path: Path) -> None:
    save_without_list(tmp_path, "n0;n1;n2")
    for configured in (("n0",), ("n0", "n1", "n9")):
        with pytest.raises(MembershipError, match="n0, n1, n2"):
            with_members(tmp_path, configured).load()


def test_a_vote_for_an_unknown_member_is_refused(tmp_path: Path) -> None:
    """A store of Java has no list; its last vote shows one member."""
    (tmp_path / "currterm").write_bytes(b"voteLeader=n1\ncurrTerm=3\n")
    assert with_members(tmp_path, MEMBERS).load() == HardState(3, "n1")
    with pytest.raises(MembershipError, match="n0, n1 and perhaps others"):
        with_members(tmp_path, ("n0",)).load()


def test_two_votes_in_one_term_are_lost(tmp_path: Path) -> None:
    make(tmp_path).save(HardState(3, "n0"))
    (tmp_path / "currterm").write_bytes(b"voteLeader=n2\ncurrTerm=3\n")
    with pytest.raises(VoteStateLostError):
        make(tmp_path).load()


def test_a_stop_while_saving_leaves_the_old_state_or_the_new() -> None:
    for count in range(_SAVE_STEPS):
        disk = new_disk()
        VoteFile(disk, "/n0", "n0").save(HardState(3, "n0"))
        stop_after(disk, count)
        with pytest.raises(MachineStoppedError):
            VoteFile(disk, "/n0", "n0").save(HardState(4, "n1"))
        disk.restart()
        assert VoteFile(disk, "/n0", "n0").load() in (HardState(3, "n0"), HardState(4, "n1"))


@pytest.mark.parametrize("former", [HardState(3, "n0"), None])
def test_a_save_that_was_cut_is_ended_by_the_next_start(former: HardState | None) -> None:
    """Java takes over with currterm alone, and would vote a second time in the term before it."""
    found = set()
    for count in range(_SAVE_STEPS if former is not None else _FIRST_SAVE_STEPS):
        disk = new_disk()
        if former is not None:
            VoteFile(disk, "/n0", "n0").save(former)
        stop_after(disk, count)
        with pytest.raises(MachineStoppedError):
            VoteFile(disk, "/n0", "n0").save(HardState(4, "n1"))
        disk.restart()
        known = VoteFile(disk, "/n0", "n0").load()
        disk.texts.pop("/n0/identity", None)
        assert VoteFile(disk, "/n0", "n0").load() == known
        found.add(known)
    assert found == {former, HardState(4, "n1")}


class _FullDisk(RealFileSystem):
    def replace(self, path: str, data: bytes) -> None:
        raise DiskFullError(path, len(data))


def test_a_full_disk_lets_a_cut_save_be_loaded(tmp_path: Path) -> None:
    make(tmp_path).save(HardState(4, "n1"))
    (tmp_path / "currterm").unlink()
    assert VoteFile(_FullDisk(), str(tmp_path), "n0").load() == HardState(4, "n1")
    assert not (tmp_path / "currterm").exists()


def test_sealed_lines() -> None:
    data = seal({"term": "3", "voted_for": ""})
    assert data.startswith(b"term=3\nvoted_for=\ncrc32=")
    assert unseal(data) == {"term": "3", "voted_for": ""}
    assert unseal(data[:-1]) is None
    assert unseal(b"term=3\n") is None
    assert parse_lines(b"\xff\xfe=1\nno separator\n") == {"\ufffd\ufffd": "1"}
