"""A send that waits for its followers is told in the leader's log, with what it waited for."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest

from tests.e2e.test_metrics import scrape, value
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE

pytestmark = pytest.mark.timeout(300)

# Shorter than what followers may be silent for; on a machine without time a leader is lost all the
# same, and then it is tried again.
_STOPPED_S = 0.4
_TRIES = 5
_SLOW_MS = 100


def slow_send(cluster: UpCluster) -> tuple[str, list[tuple[str, str]]]:
    """Stops the followers for a moment, and sends.

    Returns:
        Who leads, and what its log tells of slow sends: what they took, and waited for others, ms.
    """
    leader = cluster.wait_for_leader()
    name = str(leader["id"])
    followers = [node for node in cluster.nodes() if node["id"] != leader["id"]]
    with WireClient(leader["address"]) as client:
        if client.send("Orders", 0, b"before").code != 0:
            return name, []
        cluster.signal(signal.SIGSTOP, *followers)
        wakes = threading.Timer(_STOPPED_S, cluster.signal, args=(signal.SIGCONT, *followers))
        wakes.start()
        client.send("Orders", 0, b"waits")
        wakes.join()
    return name, re.findall(
        r"messages sent took ([\d.]+) ms: .*replicate ([\d.]+)", cluster.log_text(name)
    )


def test_a_send_without_a_majority_is_told_with_its_phases(tmp_path: Path) -> None:
    [first] = free_ports(1, spread=(0, 10, 20))
    settings = [*SMALL_STORE, f"httpPort={first}", f"slowRequestMs={_SLOW_MS}"]
    with UpCluster(tmp_path, settings=settings) as cluster:
        cluster.wait_for_all()
        # Who was given no processor meanwhile has not sent while they stood still.
        leader, log = next(filter(all, (slow_send(cluster) for _ in range(_TRIES))))
        times = [(float(took_ms), float(replicate_ms)) for took_ms, replicate_ms in log]
        assert any(took_ms >= replicate_ms > _SLOW_MS for took_ms, replicate_ms in times), times
        page = scrape(first + 10 * int(leader[1:]))[1]
        assert value(page, "ledgermq_slow_requests_total", code="send_message") >= 1
