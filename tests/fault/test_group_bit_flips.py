"""Bits that flip under running brokers: the scrub finds them, the group repairs them under load."""

from pathlib import Path

from tests.fault.bit_flips import flip
from tests.fault.up_group import Load, addresses, small_group, stop_and_verify, wait_until_whole
from tests.waiting import wait_until


def test_running_members_repair_what_flips_on_their_disks(tmp_path: Path) -> None:
    """The log of the leader, and then a queue of a follower."""
    settings = ("scrubBytesPerSecond=200000000",)
    with small_group(tmp_path, *settings) as group, Load(addresses(group)) as load:
        load.wait_for_more(200)
        wait_until_whole(group)
        name = group.wait_for_leader()["id"]
        recovered = group.log_text(name).count("recovered, it votes")
        flip(group.data / name / f"dledger-{name}" / "data" / f"{0:020d}", 20_000)
        wait_until(
            lambda: group.log_text(name).count("recovered, it votes") > recovered,
            what=f"{name} whole again",
        )
        assert "is damaged" in group.log_text(name)
        other = group.wait_for_leader()["id"]
        follower = next(node for node in ("n0", "n1", "n2") if node not in (name, other))
        queue = group.data / follower / "consumequeue" / "Load" / "1" / f"{0:020d}"
        # One of the senders may have come to little yet.
        wait_until(
            lambda: queue.exists() and any(queue.read_bytes()[20 * 5 : 20 * 6]),
            what="six messages in a queue of the follower",
        )
        flip(queue, 20 * 5 + 6)
        wait_until(
            lambda: (
                "consume queue is damaged" in group.log_text(follower)
                and group.log_text(follower).count("store opened") >= 2
            ),
            what="a second start",
        )
        load.wait_for_more(50)
        wait_until_whole(group)
        load.stop()
        load.judge(group)
        stop_and_verify(group)
