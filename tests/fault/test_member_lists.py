"""Members that are started with another member list than the one that their group has agreed on.

The list is agreed at the bootstrap and does not change. Nothing is acknowledged by less than a
majority of it, a start with another list says what is wrong, and a group recovers by itself once
the file is right.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledgermq.dledger.store.text_file import seal, unseal
from tests.fault.listed_group import GROUP, ListedGroup
from tests.waiting import wait_until

# Waits are long, for a starved machine; several may follow each other.
pytestmark = pytest.mark.timeout(600)

THREE = ("n0", "n1", "n2")
FIVE = (*THREE, "n3", "n4")


def assert_names_both_lists(reason: str, group_ids: str, file_ids: str) -> None:
    """One sentence: the list of the group, that of the file, and the key."""
    assert group_ids in reason and file_ids in reason and "dLegerPeers" in reason, reason


def wait_for_alarm(group: ListedGroup, member_id: str, *words: str) -> None:
    """Waits until `brokerStatus` of a member says what is wrong, in these words."""
    wait_until(
        lambda: all(word in group.figures(member_id).get("ledgerAlarm", "") for word in words),
        what=f"the alarm of {member_id}",
        detail=lambda: str(group.figures(member_id).get("ledgerAlarm")),
    )


def test_member_with_one_entry_does_not_serve_alone(tmp_path: Path) -> None:
    """It was a leader of its own beside the other two, and what it acknowledged was lost."""
    with ListedGroup(tmp_path, THREE) as group:
        group.start_all(*THREE)
        group.stop("n0")
        group.start("n0", group.peers("n0"))
        assert_names_both_lists(group.refusal("n0"), "n0, n1, n2", "n0")
        assert not group.takes("n0")
        group.send(["n1", "n2"])
        group.start("n0", group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_stopped_group_is_not_led_by_one_entry(tmp_path: Path) -> None:
    """The others are down, so nobody else could have refused it."""
    with ListedGroup(tmp_path, THREE) as group:
        group.start_all(*THREE)
        group.stop(*THREE)
        group.start("n0", group.peers("n0"))
        assert_names_both_lists(group.refusal("n0"), "n0, n1, n2", "n0")
        for member_id in THREE:
            group.start(member_id, group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_growth_to_five_makes_no_second_majority(tmp_path: Path) -> None:
    """One member with five names and two new ones were a majority of five beside one of three."""
    with ListedGroup(tmp_path, FIVE) as group:
        group.start_all(*THREE)
        group.stop("n0")
        for member_id in ("n0", "n3", "n4"):
            group.start(member_id, group.peers(*FIVE))
        reason = group.refusal("n0")
        assert_names_both_lists(reason, "n0, n1, n2", "n0, n1, n2, n3, n4")
        for member_id in ("n3", "n4"):
            wait_for_alarm(group, member_id, "n0, n1, n2, n3, n4", "n0, n1, n2 (key dLegerPeers)")
            wait_until(
                lambda one=member_id: (
                    f"member '{one}'" in group.figures("n1")["ledgerRejectedPeers"]
                ),
                what=f"n1 to report that it rejects {member_id}",
            )
            log = group.log_text(member_id)
            assert log.count("n1 and") == log.count("n2 and") == 1, log[-2000:]
        group.send(["n1", "n2"])
        group.kill("n1", "n2")
        assert not any(group.takes(one) for one in ("n3", "n4") for _ in range(3))
        assert group.leaders() == []
        group.stop("n3", "n4")
        for member_id in THREE:
            group.start(member_id, group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_rolling_growth_stops_at_its_first_member(tmp_path: Path) -> None:
    """As an upgrade of a chart or of a fleet does it: new members first, then one after another."""
    with ListedGroup(tmp_path, FIVE) as group:
        group.start_all(*THREE)
        for member_id in ("n3", "n4"):
            group.start(member_id, group.peers(*FIVE))
        for member_id in THREE:
            group.stop(member_id)
            group.start(member_id, group.peers(*FIVE))
            reason = group.refusal(member_id)
            assert_names_both_lists(reason, "n0, n1, n2", "n0, n1, n2, n3, n4")
            others = [one for one in THREE if one != member_id]
            group.send(others)
            assert not any(group.takes(one) for one in ("n3", "n4"))
            group.start(member_id, group.peers(*THREE))
            group.send(THREE)
        group.stop("n3", "n4")
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_every_other_list_ends_the_start(tmp_path: Path) -> None:
    """Exit code 78 and one sentence, whichever list it is; the two others go on."""
    with ListedGroup(tmp_path, FIVE) as group:
        group.start_all(*THREE)
        group.stop("n2")
        renamed = group.peers("n0", "n2").replace("n0-", "x0-")
        twice = group.peers(*THREE).replace("n1-", "n0-")
        for what, peers, changes, words in (
            ("subset", group.peers("n1", "n2"), {}, ("n0, n1, n2", "n1, n2", "dLegerPeers")),
            ("superset", group.peers(*THREE, "n3"), {}, ("n0, n1, n2", "n3", "dLegerPeers")),
            ("renamed peer", f"{renamed};{group.peers('n1')}", {}, ("x0", "dLegerPeers")),
            ("duplicate id", twice, {}, ("dLegerPeers", "each id once")),
            ("renamed member", group.peers("n0", "n1", "n3"), {"dLegerSelfId": "n3"},
             ("n2", "n3", "dLegerSelfId")),
            ("another group", group.peers(*THREE), {"dLegerGroup": "other"},
             (GROUP, "other", "dLegerGroup")),
        ):  # fmt: skip
            group.start("n2", peers, **changes)
            reason = group.refusal("n2")
            assert all(word in reason for word in words), (what, reason)
            group.send(["n0", "n1"], count=2)
        group.start("n2", group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_member_with_swapped_addresses_leads_nobody(tmp_path: Path) -> None:
    """The ids are the same, so it starts; whom it reaches says that it is another member."""
    with ListedGroup(tmp_path, THREE) as group:
        group.start_all(*THREE)
        group.stop("n2")
        n0, n1 = group.ledger_address("n0"), group.ledger_address("n1")
        group.start("n2", f"n0-{n1};n1-{n0};{group.peers('n2')}")
        wait_until(
            lambda: "member 'n0' was asked for" in group.log_text("n2"),
            what="n2 to hear that it asked the wrong member",
        )
        group.send(["n0", "n1"])
        assert not group.takes("n2")
        group.stop("n2")
        group.start("n2", group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_member_may_move_to_another_address(tmp_path: Path) -> None:
    """One file after another names it; the ids stay the same."""
    with ListedGroup(tmp_path, (*THREE, "moved")) as group:
        group.start_all(*THREE)
        moved = f"{group.peers('n0', 'n1')};n2-{group.ledger_address('moved')}"
        for member_id in ("n2", "n1", "n0"):
            group.stop(member_id)
            group.start(member_id, moved)
            group.send(THREE)
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_store_of_another_cluster_is_rejected_until_it_is_gone(tmp_path: Path) -> None:
    """Group, ids and list are the same: a directory that was copied from another installation."""
    folders = tmp_path / "other", tmp_path / "own"
    for folder in folders:
        folder.mkdir()
    with ListedGroup(folders[0], THREE) as other:
        other.start_all(*THREE)
    with ListedGroup(folders[1], THREE) as group:
        group.start_all(*THREE)
        group.stop("n2")
        store = folders[1] / "n2"
        store.rename(folders[1] / "kept")
        shutil.copytree(folders[0] / "n2", store)
        group.start("n2", group.peers(*THREE))
        wait_for_alarm(group, "n2", "n0 belongs to a different cluster", "n1 belongs")
        wait_for_alarm(group, "n0", "n2 belongs to a different cluster")
        group.send(["n0", "n1"])
        assert not group.takes("n2")
        group.stop("n2")
        shutil.rmtree(store)
        group.start("n2", group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def test_stores_without_a_list_agree_on_one(tmp_path: Path) -> None:
    """Those of an older program, which kept the ids that bootstrapped the group; then those of
    Apache's broker, which keeps a term and a vote alone."""
    with ListedGroup(tmp_path, (*THREE, "x1", "x2")) as group:
        group.start_all(*THREE)
        group.stop(*THREE)
        for member_id in THREE:
            identity = ledger_file(group, member_id, "identity")
            values = unseal(identity.read_bytes())
            assert values is not None
            values["birth_members"] = values.pop("members")
            identity.write_bytes(seal(values))
        group.start("n0", group.peers("n0", "n1"))
        assert_names_both_lists(group.refusal("n0"), "n0, n1, n2", "n0, n1")
        for member_id in THREE:
            group.start(member_id, group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.stop(*THREE)
        for member_id in THREE:
            assert "\nmembers=n0;n1;n2\n" in ledger_file(group, member_id, "identity").read_text()
            ledger_file(group, member_id, "identity").unlink()
        voter, leader = next(filter(None, (vote_of(group, one) for one in THREE)))
        group.start(voter, group.peers(voter, "x1", "x2"))
        assert_names_both_lists(group.refusal(voter), leader, f"{voter}, x1, x2")
        for member_id in THREE:
            group.start(member_id, group.peers(*THREE))
        group.wait_until_whole(*THREE)
        group.assert_nothing_is_lost()


def ledger_file(group: ListedGroup, member_id: str, name: str) -> Path:
    return group.folder / member_id / f"dledger-{member_id}" / name


def vote_of(group: ListedGroup, member_id: str) -> tuple[str, str] | None:
    """A member and another one for which it has voted; None when it has not."""
    text = ledger_file(group, member_id, "currterm").read_text()
    leader = text.partition("voteLeader=")[2].partition("\n")[0].strip()
    return (member_id, leader) if leader not in ("", member_id) else None
