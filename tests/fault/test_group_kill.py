"""Kills and stops of brokers under load: nothing acknowledged is lost, replicas stay equal."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.fault.up_group import Load, UpGroup

MESSAGES_BETWEEN = 150


def test_nothing_acked_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    with UpGroup(tmp_path) as group:
        with Load(group.addresses()) as load:
            group.wait_until_whole()
            for _ in range(2):
                load.wait_for_more(MESSAGES_BETWEEN)
                leader = group.leader()
                group.signal(signal.SIGKILL, leader)
                load.wait_for_more(MESSAGES_BETWEEN)
                assert group.leader(not_pid=leader["pid"])["pid"] != leader["pid"]
                group.wait_until_whole()
        load.judge(group)
        group.stop_and_verify()


def test_nothing_acked_is_lost_when_all_are_killed_at_once(tmp_path: Path) -> None:
    with UpGroup(tmp_path) as group:
        with Load(group.addresses()) as load:
            load.wait_for_more(MESSAGES_BETWEEN)
            group.wait_until_whole()
            group.signal(signal.SIGKILL, *group.nodes())
            load.wait_for_more(MESSAGES_BETWEEN)
            group.wait_until_whole()
        load.judge(group)
        group.stop_and_verify()


def test_nothing_acked_is_lost_when_the_leader_is_stopped_for_a_while(tmp_path: Path) -> None:
    """The old leader still believes that it leads when it goes on."""
    with UpGroup(tmp_path) as group:
        with Load(group.addresses()) as load:
            load.wait_for_more(MESSAGES_BETWEEN)
            group.wait_until_whole()
            stopped = group.leader()
            group.signal(signal.SIGSTOP, stopped)
            try:
                load.wait_for_more(MESSAGES_BETWEEN)
                group.leader(not_pid=stopped["pid"])
            finally:
                group.signal(signal.SIGCONT, stopped)
            load.wait_for_more(MESSAGES_BETWEEN)
            group.wait_until_whole()
        load.judge(group)
        group.stop_and_verify()


def test_a_follower_that_was_killed_catches_up_under_load(tmp_path: Path) -> None:
    with UpGroup(tmp_path) as group:
        with Load(group.addresses()) as load:
            load.wait_for_more(MESSAGES_BETWEEN)
            group.wait_until_whole()
            follower = next(node for node in group.nodes() if node["role"] == "FOLLOWER")
            group.signal(signal.SIGKILL, follower)
            load.wait_for_more(MESSAGES_BETWEEN)
            group.wait_until_whole()
        load.judge(group)
        group.stop_and_verify()
