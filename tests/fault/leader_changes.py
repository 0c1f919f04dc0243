"""Changes of leader in a group of three: the leader is killed, or hands the leadership on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.e2e.up_cluster import Node, UpCluster
from tests.e2e.wire_client import WireClient
from tests.fault.up_group import is_whole
from tests.processes import run_ledgermq
from tests.waiting import wait_until

T = TypeVar("T")

# Seconds for all scenarios: far more than they take.
_SCENARIOS_S = 240
_ANSWER_S = 5.0


class LeaderChanges:
    """Moves the leadership of a group while several scenarios are at work.

    Each verb waits until all scenarios have come to it, and is done once for all.
    """

    def __init__(self, group: UpCluster) -> None:
        self._group = group
        self._barrier = asyncio.Barrier(1)
        self._killed = ""

    @property
    def name_server(self) -> str:
        return self._group.name_server

    def leader_address(self) -> str:
        """Waits for the address of the node that leads."""
        return self._group.wait_for_leader()["address"]

    def ask_leader(self, question: Callable[[WireClient], T]) -> T | None:
        """Returns what a question to the leader gives; None when it is gone or does not answer.

        A leader that is not ready leaves some questions unanswered rather than say what may be old.
        """
        with (
            contextlib.suppress(OSError),
            WireClient(self.leader_address(), _ANSWER_S) as client,
        ):
            return question(client)
        return None

    def follower_addresses(self) -> list[str]:
        """Addresses of the nodes that run and do not lead."""
        leader = self.leader_address()
        nodes = self._group.nodes()
        return [node["address"] for node in nodes if node["address"] != leader and node["pid"]]

    def play(self, *scenarios: Coroutine[Any, Any, None]) -> None:
        """Runs scenarios side by side to their end, which must come."""

        async def bounded() -> None:
            self._barrier = asyncio.Barrier(len(scenarios))
            async with asyncio.timeout(_SCENARIOS_S), asyncio.TaskGroup() as tasks:
                for scenario in scenarios:
                    tasks.create_task(scenario)

        asyncio.run(bounded())

    async def kill(self) -> None:
        """Kills the leader and waits for the next one."""
        await self._once(self._kill)

    async def hand_back(self) -> None:
        """Waits until the killed member counts again, and has the leader hand on to it."""
        await self._once(self._hand_back)

    async def _once(self, step: Callable[[], None]) -> None:
        if await self._barrier.wait() == 0:
            await asyncio.to_thread(step)
        await self._barrier.wait()

    def _kill(self) -> None:
        """`ledgermq up` starts it again."""
        killed = self._group.wait_for_leader()
        self._killed = killed["id"]
        self._group.kill(killed)
        self._group.wait_for_leader(not_pid=killed["pid"])

    def _hand_back(self) -> None:
        self._wait_until_whole()
        self._hand_on(self._killed)

    def _hand_on(self, target: str) -> None:
        first = self._group.wait_for_leader()
        complaints: set[str] = set()

        def leads() -> Node | None:
            leader = self._group.wait_for_leader()
            return leader if leader["id"] == target else None

        def is_done() -> Node | None:
            words = ("transferLeader", "-n", self.name_server, "-a", first["address"])
            done = run_ledgermq("admin", *words, "--to", target)
            complaints.add(done.stderr)
            if done.returncode == 0:
                # It is told a moment later; on a starved machine another one may lead by then.
                with contextlib.suppress(AssertionError):
                    return wait_until(leads, what="the news", deadline_s=5)
            return leads()

        try:
            wait_until(lambda: leads() or is_done(), what=f"{target} to lead", deadline_s=60)
        except AssertionError as error:
            error.add_note("".join(sorted(complaints)))
            raise

    def _wait_until_whole(self) -> None:
        """A member that comes back counts again when the others committed without it."""

        def is_whole_when_warm() -> bool:
            try:
                with WireClient(self._group.wait_for_leader()["address"]) as client:
                    client.send("Warm", 0, b"x")
            except OSError:
                return False
            return is_whole(self._group)

        wait_until(is_whole_when_warm, what="a leader and two followers", deadline_s=60)
