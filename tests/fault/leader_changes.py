"""Changes of leader in a group of three: the leader is killed, or hands the leadership on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from tests.e2e.live_program import run_ledgermq
from tests.e2e.wire_client import WireClient
from tests.fault.up_group import NODES, UpGroup
from tests.waiting import wait_until

# Seconds for one scenario: far more than any takes.
SCENARIO_S = 110


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario to its end, which must come."""

    async def bounded() -> None:
        async with asyncio.timeout(SCENARIO_S):
            await scenario

    asyncio.run(bounded())


async def until(condition: Callable[[], Any], what: str, deadline_s: float = 60.0) -> None:
    """Waits for a condition; its failure says for what."""
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise AssertionError(f"after {deadline_s} s still waiting for {what}") from error


class LeaderChanges:
    """Moves the leadership of a group; each verb returns the node that leads afterwards."""

    def __init__(self, group: UpGroup) -> None:
        self._group = group

    @property
    def name_server(self) -> str:
        return str(self._group.document()["namesrv"])

    async def kill(self) -> dict[str, Any]:
        """Kills the leader; `ledgermq up` starts it again."""
        return await asyncio.to_thread(self._kill)

    async def hand_on(self, target_id: str | None = None) -> dict[str, Any]:
        """Has the leader hand on to a member; None for any one."""
        return await asyncio.to_thread(self._hand_on, target_id)

    async def leader(self) -> dict[str, Any]:
        """Waits for the node that leads."""
        return await asyncio.to_thread(self._group.leader)

    def leader_address(self) -> str:
        """Waits for the address of the node that leads."""
        return str(self._group.leader()["address"])

    async def whole(self) -> None:
        """Waits until all three members count; needs no traffic."""
        await asyncio.to_thread(self.wait_until_whole)

    def _kill(self) -> dict[str, Any]:
        killed = self._group.leader()
        self._group.signal(signal.SIGKILL, killed)
        return self._group.leader(not_pid=killed["pid"])

    def _hand_on(self, target_id: str | None) -> dict[str, Any]:
        first = self._group.leader()
        target = target_id or next(node for node in NODES if node != first["id"])
        complaints: set[str] = set()

        def leads() -> dict[str, Any] | None:
            leader = self._group.leader()
            return leader if leader["id"] == target else None

        def is_done() -> dict[str, Any] | None:
            words = ("transferLeader", "-n", self.name_server, "-a", first["address"])
            done = run_ledgermq("admin", *words, "--to", target)
            complaints.add(done.stderr)
            if done.returncode == 0:
                # It is told a moment later; on a starved machine another one may lead by then.
                with contextlib.suppress(AssertionError):
                    return wait_until(leads, what="the news", deadline_s=5)
            return leads()

        try:
            node = leads() or wait_until(is_done, what=f"{target} to lead", deadline_s=60)
        except AssertionError as error:
            error.add_note("".join(sorted(complaints)))
            raise
        assert node is not None
        return node

    def wait_until_whole(self) -> None:
        """A member that comes back counts again when the others committed without it."""

        def is_whole() -> bool:
            try:
                with WireClient(self._group.leader()["address"]) as client:
                    client.send("Warm", 0, b"x")
            except OSError:
                return False
            return self._group.is_whole()

        wait_until(is_whole, what="a leader and two followers", deadline_s=60)
