"""Leaders of both kinds in groups of 100,000 entries; what a deposed leader had alone; stores.

A Java member is stock DLedger 0.3.1.2, as RocketMQ 4.9.5 and later ship it. The leadership moves
over the wire (LEADERSHIP_TRANSFER), by the code of `ledgermq admin transferLeader`, and by
`kill -9`.
"""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from tests.interop.conftest import Tell
from tests.interop.mixed_group import JAVA, PYTHON, MixedGroup, expected, without_openings
from tests.line_process import wait_until_equal
from tests.waiting import wait_until

# JVMs that start on a busy machine, and elections of six seconds each.
pytestmark = pytest.mark.timeout(600)

# Of each group.
ENTRY_COUNT = 100_000
# A Java leader refuses appends above 10,000 that wait.
CHUNK_COUNT = 2_500
# Changes of leader by transfer; with each, the kind of the leader changes.
TRANSFER_COUNT = 10


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MixedGroup]:
    group = MixedGroup(tmp_path)
    yield group
    group.kill_all()


class Log:
    """What was appended to a group, in order."""

    def __init__(self, group: MixedGroup) -> None:
        self._group = group
        self.bodies: list[bytes] = []

    def append(self, count: int, prefix: str) -> None:
        """Appends through the leader; all must be committed."""
        for start in range(0, count, CHUNK_COUNT):
            chunk_count = min(CHUNK_COUNT, count - start)
            self._group.append(chunk_count, f"{prefix}{start}:")
            self.bodies += expected(chunk_count, f"{prefix}{start}:")


def verify(group: MixedGroup) -> None:
    """`ledgermq log verify` finds all stores sound, whoever wrote them, and equal.

    But for what it says of each body: that it is no record of a message, which is true here.
    """
    out = io.StringIO()
    stores = [str(group.directory / f"dledger-{member_id}") for member_id in group.kinds]
    with contextlib.redirect_stdout(out):
        main(["log", "verify", "--json", *stores])
    found = json.loads(out.getvalue())
    assert found["differences"] == []
    assert len({store["last_index"] for store in found["stores"]}) == 1
    for store in found["stores"]:
        assert store["entries"] == store["last_index"] + 1
        # Bodies are looked at as far as the member noted that they are committed.
        assert store["defect_count"] == store["committed_index"] + 1
        assert [text for text in store["defects"] if "holds no record" not in text] == []


@pytest.mark.parametrize(
    ("kinds", "is_batch_pushing"),
    [((JAVA, JAVA, PYTHON), False), ((JAVA, PYTHON, PYTHON), True)],
    ids=["two of Java", "two of ours"],
)
def test_leadership_moves_ten_times_and_every_file_is_equal(
    group: MixedGroup, kinds: tuple[str, ...], is_batch_pushing: bool, tell: Tell
) -> None:
    group.is_batch_pushing = is_batch_pushing
    group.start(*kinds)
    log = Log(group)
    led = [group.kinds[group.leader_id()]]
    log.append(CHUNK_COUNT, "first:")
    for turn in range(TRANSFER_COUNT):
        leader_id = group.leader_id()
        others = [i for i, kind in group.kinds.items() if kind != group.kinds[leader_id]]
        target_id = others[turn % len(others)]
        group.lead(target_id)
        led.append(group.kinds[target_id])
        log.append(ENTRY_COUNT // TRANSFER_COUNT, f"turn{turn}:")
    for _ in range(2):
        victim_id = group.leader_id()
        group.kill(victim_id)
        log.append(100, f"without-{victim_id}:{len(log.bodies)}:")
        led.append(group.kinds[group.leader_id()])
        group.start_again(victim_id)
        group.leader_id()
    log.append(10, "end:")
    changes = list(zip(led, led[1:], strict=False))
    to_ours, to_java = changes.count((JAVA, PYTHON)), changes.count((PYTHON, JAVA))
    assert min(to_ours, to_java) >= TRANSFER_COUNT // 2
    wait_until_equal(group.members)
    digests = {member.digest() for member in group.members.values()}
    assert len(digests) == 1
    assert without_openings(group.judge()) == log.bodies
    verify(group)
    tell(
        f"{', '.join(kinds)}: {len(log.bodies)} entries, {to_ours} times to ours, {to_java} times"
        " to Java, files equal"
    )


@pytest.mark.parametrize(
    "kinds", [(JAVA, PYTHON, PYTHON), (PYTHON, JAVA, JAVA)], ids=["Java returns", "ours returns"]
)
def test_what_a_deposed_leader_had_alone_is_cut(group: MixedGroup, kinds: tuple[str, ...]) -> None:
    """COMPARE finds where the logs part, TRUNCATE cuts there; by leaders of either kind."""
    group.start(*kinds)
    log = Log(group)
    if group.leader_id() != "n0":
        group.lead("n0")
    log.append(300, "common:")
    wait_until_equal(group.members)
    group.kill("n1")
    group.kill("n2")
    leader = group.members["n0"]
    last_index = leader.state().last_index
    # More than a segment: the cut removes files.
    leader.leave(200, "alone:" + "x" * 8000)
    wait_until(lambda: leader.state().last_index == last_index + 200, what="the tail")
    group.kill("n0")
    group.start_again("n1")
    group.start_again("n2")
    log.append(400, "later:")
    group.start_again("n0")
    log.append(100, "end:")
    assert without_openings(group.judge()) == log.bodies
    verify(group)


@pytest.mark.parametrize(
    "kinds", [(JAVA, PYTHON, PYTHON), (PYTHON, JAVA, JAVA)], ids=["Java leads", "ours leads"]
)
def test_follower_that_was_away_is_brought_up_with_a_throttle(
    group: MixedGroup, kinds: tuple[str, ...]
) -> None:
    group.throttle_far_bytes = 1 << 20
    group.throttle_quota_bytes = 4 << 20
    group.start(*kinds)
    log = Log(group)
    if group.leader_id() != "n0":
        group.lead("n0")
    log.append(10, "first:")
    group.kill("n2")
    log.append(10_000, "x" * 1000)
    group.start_again("n2")
    log.append(10, "last:")
    assert without_openings(group.judge()) == log.bodies


def test_store_directories_are_portable_both_ways(group: MixedGroup) -> None:
    """Java writes, ours open its stores and go on; Java opens these and goes on."""
    group.start(JAVA, JAVA, JAVA)
    log = Log(group)
    served: list[tuple[int, str]] = []
    for kind in (JAVA, PYTHON, JAVA):
        group.kinds = dict.fromkeys(group.kinds, kind)
        for member_id in group.kinds:
            if member_id not in group.members:
                group.start_again(member_id)
        log.append(3_000, f"{kind}{len(served)}:" + "x" * 300)
        wait_until_equal(group.members)
        digests = {member.digest() for member in group.members.values()}
        assert len(digests) == 1, kind
        served += digests
        group.stop_all()
        verify(group)
    group.start_again("n0")
    group.start_again("n1")
    group.start_again("n2")
    assert without_openings(group.judge()) == log.bodies


@pytest.mark.parametrize("is_batch_pushing", [False, True], ids=["single", "batch"])
def test_release_of_4_9_3_shares_a_group_and_a_store(
    group: MixedGroup, is_batch_pushing: bool
) -> None:
    """DLedger 0.2.3 writes no localId and no count, and understands batches in another way."""
    group.release = "0.2.3"
    group.is_batch_pushing = is_batch_pushing
    group.start(JAVA, PYTHON, PYTHON)
    log = Log(group)
    for target_id in ("n1", "n0", "n2", "n0"):
        if group.leader_id() != target_id:
            group.lead(target_id)
        log.append(2_500, f"{target_id}:{len(log.bodies)}:")
    group.kill("n2")
    log.append(500, "without:")
    group.start_again("n2")
    log.append(10, "end:")
    assert without_openings(group.judge()) == log.bodies
    verify(group)
