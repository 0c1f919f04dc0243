"""Kills and stops of brokers under load: nothing acknowledged is lost, replicas stay equal."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fault.up_group import Load, addresses, small_group, stop_and_verify, wait_until_whole

MESSAGES_BETWEEN = 150


def test_nothing_acked_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    with small_group(tmp_path) as group:
        with Load(addresses(group)) as load:
            wait_until_whole(group)
            for _ in range(2):
                load.wait_for_more(MESSAGES_BETWEEN)
                leader = group.wait_for_leader()
                group.kill(leader)
                load.wait_for_more(MESSAGES_BETWEEN)
                assert group.wait_for_leader(not_pid=leader["pid"])["pid"] != leader["pid"]
                wait_until_whole(group)
        load.judge(group)
        stop_and_verify(group)


def test_nothing_acked_is_lost_when_all_are_killed_at_once(tmp_path: Path) -> None:
    with small_group(tmp_path) as group:
        with Load(addresses(group)) as load:
            load.wait_for_more(MESSAGES_BETWEEN)
            wait_until_whole(group)
            group.kill(*group.nodes())
            load.wait_for_more(MESSAGES_BETWEEN)
            wait_until_whole(group)
        load.judge(group)
        stop_and_verify(group)


def test_nothing_acked_is_lost_when_the_leader_is_stopped_for_a_while(tmp_path: Path) -> None:
    """The old leader still believes that it leads when it goes on."""
    with small_group(tmp_path) as group:
        with Load(addresses(group)) as load:
            load.wait_for_more(MESSAGES_BETWEEN)
            wait_until_whole(group)
            stopped = group.wait_for_leader()
            group.signal(signal.SIGSTOP, stopped)
            try:
                load.wait_for_more(MESSAGES_BETWEEN)
                group.wait_for_leader(not_pid=stopped["pid"])
            finally:
                group.signal(signal.SIGCONT, stopped)
            load.wait_for_more(MESSAGES_BETWEEN)
            wait_until_whole(group)
        load.judge(group)
        stop_and_verify(group)


def test_a_follower_that_was_killed_catches_up_under_load(tmp_path: Path) -> None:
    with small_group(tmp_path) as group:
        with Load(addresses(group)) as load:
            load.wait_for_more(MESSAGES_BETWEEN)
            wait_until_whole(group)
            follower = next(node for node in group.nodes() if node["role"] == "FOLLOWER")
            group.kill(follower)
            load.wait_for_more(MESSAGES_BETWEEN)
            wait_until_whole(group)
        load.judge(group)
        stop_and_verify(group)
