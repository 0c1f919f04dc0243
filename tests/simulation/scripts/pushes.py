"""Replication: pushes that come late, twice, or from leaders that are none any more."""

from collections.abc import Callable

from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    CompareRequest,
    HeartBeatRequest,
    PushResponse,
    TruncateRequest,
    VoteRequest,
)
from ledgermq.testing.simulation.invariants import demand
from tests.simulation.stage import Stage, group

_ALL_JAVA = ("n0", "n1", "n2")
_CHECKPOINT = "/store/dledger-n0/checkpoint"


def push_of_a_deposed_leader() -> None:
    """D3: an APPEND of a past term arrives when another leader's entries are committed there."""
    stage = group()
    index = stage.last_index("n0") + 1
    stage.hold(AppendRequest, "n0", "n1")
    late = stage.hold(AppendRequest, "n0", "n2")
    stage.send("n0", 2)
    stage.isolate("n0")
    stage.elect("n1")
    stage.until(lambda: stage.commit_index("n1") >= index, "n1 commits")
    late.release()
    stage.run(50)
    demand(stage.term_at("n2", index) == stage["n1"].raft.term, "I10 n2 lost the entry")
    stage.settle()


def late_truncate_of_the_same_term() -> None:
    """D4: a second copy of a TRUNCATE comes after entries were acknowledged behind it (Java)."""
    stage = group(java_ids=_ALL_JAVA)
    index = stage.last_index("n0")
    stage.isolate("n0")
    stage.send("n0", 2)
    stage.hold(AppendRequest, "n1", "n2")
    stage.elect("n1")
    copies = stage.hold(TruncateRequest, "n1", "n0", is_copy=True)
    stage.isolate("n2")
    stage.until(lambda: stage.commit_index("n1") > index, "n1 commits with n0")
    demand(bool(copies.letters), "a TRUNCATE was sent")
    copies.release()
    stage.run(50)
    demand(stage.last_index("n0") > index, "I10 n0 lost what it acknowledged")
    stage.settle()


def figure_8() -> None:
    """D5: an entry of an old term on a majority is not committed by counting."""
    stage = group(5)
    index = stage.last_index("n0") + 1
    for target in ("n2", "n3", "n4"):
        stage.hold(AppendRequest, "n0", target)
    # (a) Too long for one frame together with the next entry.
    stage.send("n0", body_bytes=1_900)
    stage.until(lambda: stage.last_index("n1") == index, "n1 has the entry")
    stage.kill("n0")
    for held in stage.held:
        held.stop()
    # (b) n4 leads with another entry at the same index.
    stage.isolate("n0", "n1")
    for target in ("n2", "n3"):
        stage.hold(AppendRequest, "n4", target)
    stage.elect("n4")
    # (c) n0 leads again and brings its old entry, but nothing of its own term, to n2 and n3.
    stage.isolate("n4")
    for target in ("n1", "n2", "n3"):
        stage.hold(AppendRequest, "n0", target, _only_behind(stage, target, index))
    stage.start("n0")
    stage.elect("n0")
    stage.propose("n0", 1)
    for target in ("n2", "n3"):
        stage.until(lambda t=target: stage.last_index(t) == index, f"{target} has the old entry")
    stage.run(300)
    demand(stage.commit_index("n0") < index, "I8 an entry of an old term is counted")
    # (d) n4 leads again: its entry replaces the old one.
    stage.kill("n0")
    for held in stage.held:
        held.stop()
    stage.heal()
    stage.lead("n4")
    stage.settle()


def _only_behind(stage: Stage, target: str, index: int) -> Callable[[AppendRequest], bool]:
    return lambda m: m.entries.first_index > index and stage.last_index(target) >= index


def match_index_of_an_earlier_term() -> None:
    """A leader of two terms: what it knew of a follower in the first is not so in the second."""
    stage = group(5)
    index = stage.last_index("n0") + 1
    # n0 and n2 have two entries that no one else has.
    for target in ("n1", "n3", "n4"):
        stage.hold(AppendRequest, "n0", target)
    stage.send("n0", 2)
    stage.until(lambda: stage.last_index("n2") == index + 1, "n2 has both")
    stage.run(20)
    for held in stage.held:
        held.stop()
    # n3 puts its own in their place on n2, and on no one else.
    stage.isolate("n0")
    for target in ("n1", "n4"):
        stage.hold(AppendRequest, "n3", target)
    stage.elect("n3")
    term = stage["n3"].raft.term
    stage.until(lambda: stage.term_at("n2", index) == term, "n2 follows n3")
    # n0 leads again, by the votes of n1 and n4.
    stage.split(("n0", "n1", "n4"), ("n2",), ("n3",))
    stage.lead("n0")
    stage.heal()
    stage.settle()


def acknowledgement_of_an_earlier_term() -> None:
    """A leader of two terms: an answer to a push of the first comes in the second, and numbers of
    requests begin anew with each term.
    """
    stage = group(5)
    index = stage.last_index("n0") + 1
    # n0 and n2 have a tail that no one else has; that n2 has it, n0 does not hear.
    for target in ("n1", "n3", "n4"):
        stage.hold(AppendRequest, "n0", target)
    late = stage.hold(PushResponse, "n2", "n0")
    # As many frames as may be on the way.
    for _ in range(4):
        stage.send("n0", body_bytes=1_900)
    stage.until(lambda: stage.last_index("n2") == index + 3, "n2 has the tail")
    stage.run(20)
    for held in stage.held:
        held.stop()
    # n3 puts its own entry in its place on n2, and on no one else.
    stage.isolate("n0")
    for target in ("n1", "n4"):
        stage.hold(AppendRequest, "n3", target)
    stage.elect("n3")
    term = stage["n3"].raft.term
    stage.until(lambda: stage.term_at("n2", index) == term, "n2 follows n3")
    # n0 leads again, by the votes of n1 and n4; what it pushes to n2 is under way for long.
    stage.split(("n0", "n1", "n4"), ("n2",), ("n3",))
    stage.lead("n0")
    pushed = stage.hold(AppendRequest, "n0", "n2", lambda m: m.entries.first_index == index)
    stage.hold(
        AppendRequest, "n0", "n2", lambda m: m.entries.first_index > index and bool(pushed.letters)
    )
    stage.heal()
    stage.until(lambda: bool(pushed.letters), "n0 pushes the tail to n2")
    stage.run(20)
    late.release()
    stage.run(20)
    for held in stage.held:
        held.stop()
    stage.settle()


def append_behind_another_history() -> None:
    """D6: an APPEND whose entry before is not the follower's is refused."""
    stage = two_tails()
    stage.start("n1")
    store = stage["n1"].store
    end = store.last_index + 1
    # n2 gets the tail of n1 up to its opening record, and then leads by the vote of n0. It begins
    # with an APPEND, for it knows how n0 speaks.
    stage.hold(AppendRequest, "n1", "n2", lambda m: m.entries.last_index > end)
    stage.elect("n1")
    stage.until(lambda: stage.last_index("n2") == end, "n2 has the tail of n1")
    stage.kill("n1")
    stage.heal()
    stage.lead("n2")
    stage.start("n1")
    stage.holds_all("n0", "n1", "n2")
    stage.settle()


def two_tails(body_bytes: int = 40) -> Stage:
    """n0 has a tail of its second term, which nobody else has; n1, which is down, has another one.

    n0 is cut off. The terms of n0's tail are higher. What stands at equal indexes of both tails has
    equal sizes, and a tail is longer than one frame. The size of the first message moves them all.
    """
    stage = group(body_bytes=body_bytes)
    stage.isolate("n0")
    lost = stage.hold(AppendRequest, "n1", "n2")
    stage.elect("n1")
    stage.propose("n1", 16)
    stage.kill("n1")
    lost.stop()
    stage.isolate("n1")
    lost = stage.hold(AppendRequest, "n0", "n2")
    stage.elect("n0")
    stage.propose("n0", 30)
    stage.isolate("n0")
    lost.stop()
    return stage


def cut_during_a_sync() -> None:
    """A sync that began before a cut proves nothing of what was appended after it."""
    stage = group()
    index = stage.last_index("n0") + 1
    stage["n0"].sync_ms = 12_000.0
    stage.isolate("n0")
    stage.send("n0", 30)
    stage.elect("n1")
    stage.send("n1", 3)
    stage.until(lambda: stage.commit_index("n1") > index, "n1 commits")
    term = stage["n1"].raft.term
    stage["n0"].sync_ms = 1.0
    stage.heal()
    # The core of n0 cuts while the first sync runs; the disk does when that has ended.
    stage.until(lambda: stage.term_at("n0", index) == term, "n0 has what n1 has")
    stage.holds_all("n0", "n1", "n2")
    stage.hand_over("n1", "n0")
    stage.isolate("n1")
    stage["n0"].sync_ms = 2_000.0
    stage.send("n0", 3)
    stage.run(1_000)
    stage.heal()
    stage.settle()


def commit_index_ahead_of_the_cut() -> None:
    """What is committed in the place of a tail is noted when it stands there, not when it is known.

    The core of n0 knows it while the term, and then the cut, wait for the disk; the background
    comes in between.
    """
    stage = group()
    index = stage.last_index("n0") + 1
    stage.isolate("n0")
    stage.send("n0", 30)
    stage.elect("n1")
    stage.send("n1", 3)
    stage.holds_all("n1", "n2")
    demand(stage.commit_index("n1") > index, "n1 commits")
    stage["n0"].sync_ms = 700.0
    held = [stage.hold(kind, "n1", "n0") for kind in (HeartBeatRequest, AppendRequest)]
    stage.heal()
    stage.until(lambda: all(one.letters for one in held), "n1 speaks to n0")
    for one in held:
        one.release()
    stage.until(lambda: stage["n0"].raft.commit_index >= index, "the core of n0 knows")
    texts, store = stage["n0"].disk.texts, stage["n0"].store
    noted = texts[_CHECKPOINT]
    stage.until(lambda: texts[_CHECKPOINT] != noted or store.last_index < index, "the cut begins")
    stage.kill("n0")
    stage["n0"].sync_ms = 1.0
    stage.start("n0")
    stage.settle()


def sends_during_a_sync() -> None:
    """A sync answers for what was written before it began, and for nothing else."""
    stage = group()
    # The background has its turn each half second: no job of its comes in between.
    stage.run(510 - stage.world.timeline.now_ms % 500)
    stage.isolate("n1")
    for member_id in ("n0", "n2"):
        stage[member_id].sync_ms = 400.0
    stage.send("n0")
    stage.run(100)
    stage.send("n0", 2)
    stage.run(450)
    stage.cut_power("n0", "n2", keeps=lambda name, at: False)
    for member_id in ("n0", "n2"):
        stage[member_id].sync_ms = 1.0
    stage.heal()
    stage.start()
    stage.settle()


def commit_index_ahead_of_the_match() -> None:
    """A follower commits nothing of its own tail, whatever commit index it hears of."""
    stage = group()
    index = stage.last_index("n0")
    stage.isolate("n0")
    stage.send("n0", 3)
    stage.lead("n1")
    stage.send_all("n1", 3)
    stage.hold((AppendRequest, CompareRequest), "n1", "n0")
    stage.heal()
    stage.until(lambda: stage["n0"].raft.leader_id == "n1", "n0 follows n1")
    stage.run(1_500)
    demand(stage.commit_index("n0") == index, "I7 n0 commits its own tail")
    stage.settle()


def retry_after_a_lost_push() -> None:
    """D13: the old request for an index comes after its retry, and blocks nothing."""
    stage = group()
    late = stage.hold(AppendRequest, "n0", "n2")
    stage.send_all("n0", 2)
    late.stop()
    stage.holds_all("n0", "n2")
    stage.send_all("n0")
    late.release()
    stage.send_all("n0")
    stage.holds_all("n0", "n1", "n2")
    stage.settle()


def double_leader_change() -> None:
    """A tail of three entries is cut by the leader after the next one."""
    stage = group()
    stage.isolate("n0")
    stage.send("n0", 3)
    stage.lead("n1")
    stage.send_all("n1")
    stage.hand_over("n1", "n2")
    stage.send_all("n2")
    stage.heal()
    stage.holds_all("n0", "n1", "n2")
    stage.settle()


def stranger_on_the_port() -> None:
    """D17: votes, cuts and commits of someone who is no member change nothing."""
    stage = group()
    member = stage["n2"]
    raft, store = member.raft, member.store
    term, index = raft.term, store.last_index
    before = raft.commit_index
    entry = store.read(index, 1)
    place = {"sender": "x", "target": "n2"}
    push = {**place, "term": term, "commit_index": index + 5, "request_id": 1}
    for message in (
        VoteRequest(**place, term=term + 9, last_index=index + 9, last_term=term + 9),
        HeartBeatRequest(**place, term=term + 9, commit_index=index + 5),
        TruncateRequest(**push, entry=entry),
        CommitRequest(**push),
    ):
        member.enter(lambda m=message: member.replica.message_received(m))
    stage.run(100)
    is_same = (raft.term, store.last_index, raft.commit_index) == (term, index, before)
    demand(is_same, "a stranger was heard", raft.term, store.last_index, raft.commit_index)
    demand(stage.is_leader("n0"), "I15 the leader went")
    stage.settle()
