"""Groups that mix members of ours with stock DLedger 0.3.1.2: each leads, each follows.

The data files of all members must be the same, byte for byte, up to the committed end: a Java
member stores the checksums that we fill, we store the zeros that it leaves there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.dledger.entry import HEAD_BYTES, read_head
from tests.interop.mixed_group import JAVA, PYTHON, MixedGroup, expected, without_openings

# Long enough that a test rolls into the second data segment.
LONG_PREFIX = "x" * 1200


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MixedGroup]:
    group = MixedGroup(tmp_path)
    yield group
    group.kill_all()


@pytest.mark.parametrize("is_batch_pushing", [False, True])
def test_our_member_follows_a_java_leader(group: MixedGroup, is_batch_pushing: bool) -> None:
    group.is_batch_pushing = is_batch_pushing
    group.start(JAVA, JAVA)
    first_prefix = LONG_PREFIX + ":"
    group.append(1000, first_prefix)
    group.start(PYTHON)
    assert group.kinds[group.leader_id()] == JAVA
    group.append(300, "after:")
    bodies = group.judge()
    assert bodies == expected(1000, first_prefix) + expected(300, "after:")
    assert group.filled_counts() == (0, 1300)


def test_java_member_follows_our_leader(group: MixedGroup) -> None:
    # The others do not wait for it with the birth of their group.
    group.founder_ids = ("n0", "n1")
    group.start(PYTHON, PYTHON)
    first_prefix = LONG_PREFIX + ":"
    group.append(1000, first_prefix)
    group.start(JAVA)
    assert group.kinds[group.leader_id()] == PYTHON
    group.append(300, "after:")
    bodies = without_openings(group.judge())
    assert bodies == expected(1000, first_prefix) + expected(300, "after:")
    assert group.filled_counts()[1] == 0


@pytest.mark.parametrize("kinds", [(JAVA, PYTHON, PYTHON), (JAVA, JAVA, PYTHON)])
def test_leadership_moves_between_kinds_and_nothing_is_lost(
    group: MixedGroup, kinds: tuple[str, str, str]
) -> None:
    group.start(*kinds)
    bodies: list[bytes] = []
    led: list[str] = []
    for turn in range(3):
        leader_id = group.leader_id()
        led.append(group.kinds[leader_id])
        group.append(100, f"turn{turn}:")
        bodies += expected(100, f"turn{turn}:")
        group.kill(leader_id)
        group.append(50, f"without{turn}:")
        bodies += expected(50, f"without{turn}:")
        group.start_again(leader_id)
    group.append(10, "end:")
    bodies += expected(10, "end:")
    print(f"led in turn: {', '.join(led)}")
    assert without_openings(group.judge()) == bodies


def test_heads_are_laid_out_alike() -> None:
    """The codec reads a head that Java wrote: "hello", the first entry of term 1."""
    written = bytes.fromhex(
        "00000001" "00000035" "0000000000000000" "0000000000000001" "0000000000000000"
        "00000000" "00000000" "00000000" "00000005" "68656c6c6f"
    )  # fmt: skip
    head = read_head(written)
    assert (head.size, head.index, head.term, head.body_bytes) == (HEAD_BYTES + 5, 0, 1, 5)
