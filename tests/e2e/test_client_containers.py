"""Two members that are the same process of the same machine by all that a process can see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.processes import ChildProcess
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
# The first process of a container has the id 1, and bridges give the same addresses everywhere.
OWN_IDS = ("unshare", "--pid", "--fork", "--kill-child")

MEMBER = """
import asyncio, os, sys
from ledgermq.client import PushConsumer

if sys.argv[3] == "told":
    os.getpid = lambda: 1


async def nothing(message): ...


async def main():
    mode = sys.argv[4]
    async with PushConsumer(sys.argv[1], "Twins" + mode, sys.argv[2], nothing, mode=mode) as member:
        print("id", member.client_id, flush=True)
        shown = None
        while True:
            queues = sorted(queue.queue_id for queue in member.queues())
            if queues != shown:
                shown = queues
                print("queues", *queues, flush=True)
            await asyncio.sleep(0.05)


asyncio.run(main())
"""


def may_unshare() -> bool:
    done = subprocess.run([*OWN_IDS, "true"], capture_output=True, check=False)
    return done.returncode == 0


class Member:
    """One process of the group."""

    def __init__(self, log: Path, words: list[str], is_own: bool) -> None:
        self._log = log
        prefix = OWN_IDS if is_own else ()
        command = [*prefix, sys.executable, "-c", MEMBER, *words]
        environment = {"PYTHONPATH": str(ROOT)}
        self.process = ChildProcess(command, log, environment, folder=log.parent)

    def queues(self) -> set[int]:
        """What it has told last."""
        told = re.findall(r"^queues(.*)$", self._log.read_text(), re.M)
        return set(map(int, told[-1].split())) if told else set()

    def host_and_process(self) -> str:
        found = re.search(r"^id ([^#]+)#", self._log.read_text(), re.M)
        return found[1] if found else ""


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
@pytest.mark.parametrize("how", ["namespaces", "told"])
def test_members_of_one_address_and_process_id_share_the_queues(
    how: str, mode: str, up_cluster: UpCluster, tmp_path: Path
) -> None:
    """With one id each would take all of them, and every message would be consumed twice."""
    if how == "namespaces" and not may_unshare():
        pytest.skip("this user may not make namespaces of process ids (unshare --pid)")
    topic = f"Twins{how}{mode}"
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq.cli.main", "send", "-n", up_cluster.name_server]
        + ["-t", topic, "x"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    words = [up_cluster.name_server, topic, how, mode]
    members = [
        Member(tmp_path / f"member{number}.log", words, how == "namespaces") for number in range(2)
    ]
    try:
        wait_until(
            lambda: sorted(len(one.queues()) for one in members) == [2, 2],
            what="halves",
            detail=lambda: " ".join(str(one.queues()) for one in members),
        )
        assert members[0].queues() | members[1].queues() == {0, 1, 2, 3}
        assert members[0].host_and_process() == members[1].host_and_process() != ""
    finally:
        for one in members:
            one.process.kill()
