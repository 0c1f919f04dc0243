"""How long a member with a store of some size needs after kill -9, and to rebuild its queues.

Fills one member's store, kills the broker, and measures until it leads again; then stops it,
deletes all consume queues, starts it and compares the rebuilt files byte for byte with the old.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.cluster import Running, cluster
from ledgermq.cli.store_walk import StoreDirectory

TOPIC = "RecoveryTopic"
QUEUES = 8
POLL_S = 0.02


def fill(running: Running, total_bytes: int) -> int:
    """Sends 1 KiB messages until the store has that many bytes; returns how many."""
    messages = 0
    while messages * 1300 < total_bytes:
        words = ["--address", str(running.leader()["address"]), "--topic", TOPIC, "--seconds", "5"]
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", *words, "--queues", str(QUEUES)],
            check=True,
            capture_output=True,
            text=True,
        )
        messages += json.loads(done.stdout)["messages"]
    return messages


def takes_changes(running: Running) -> bool:
    """Whether the leader serves: it has applied all that is committed, and takes new entries."""
    try:
        running.create_topic(TOPIC, QUEUES)
    except subprocess.CalledProcessError:
        return False
    return True


def kill_and_wait(running: Running) -> float:
    """Kills the leader's process; returns the seconds until a new process serves."""
    old_pid = int(str(running.leader()["pid"]))
    pause = threading.Event()
    start = time.perf_counter()
    os.kill(old_pid, signal.SIGKILL)
    while True:
        leaders = [b for b in running.brokers() if b["role"] == "LEADER" and b["pid"] != old_pid]
        if leaders and leaders[0]["pid"] and takes_changes(running):
            return time.perf_counter() - start
        pause.wait(POLL_S)


def digests(root: Path) -> dict[str, str]:
    """SHA-256 of every file below a directory."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def main() -> int:
    """Prints the figures; exit code 1 when the rebuilt queues differ."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory(prefix="ledgermq-recovery-") as folder:
        data = Path(folder)
        settings = ("mappedFileSizeCommitLog=268435456",)
        with cluster(1, settings, data) as running:
            running.create_topic(TOPIC, QUEUES)
            messages = fill(running, megabytes * 2**20)
            recovery_s = kill_and_wait(running)
        root = data / "data" / "n0"
        store_bytes = 268_435_456 * (len(StoreDirectory(root / "dledger-n0").segments()) - 1)
        before = digests(root / "consumequeue")
        shutil.rmtree(root / "consumequeue")
        with cluster(1, settings, data) as running:
            rebuild_s = running.ready_s
        after = digests(root / "consumequeue")
    same = before == after
    print(
        f"{messages:,} messages, {store_bytes / 2**20:,.0f} MiB of full segments: serves "
        f"{recovery_s:.2f} s after kill -9; queues deleted: serves {rebuild_s:.2f} s after the "
        f"start, {len(before)} queue files {'identical' if same else 'DIFFER'}"
    )
    return 0 if same and before else 1


if __name__ == "__main__":
    sys.exit(main())
