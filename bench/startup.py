"""How soon an empty broker serves, and what it takes in memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time

from bench.cluster import resident_mb

ROUNDS = 5


def start_once() -> tuple[float, float]:
    """Starts a broker that is its whole group; returns seconds to serving, and resident MB."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-startup-") as folder:
        words = [
            sys.executable, "-m", "ledgermq.cli.main", "broker", "--json", "listenPort=0",
            "brokerIP1=127.0.0.1", f"storePathRootDir={folder}/store",
        ]  # fmt: skip
        begun = time.perf_counter()
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if json.loads(line)["serving"]:
                    return time.perf_counter() - begun, resident_mb(process.pid)
            raise RuntimeError(f"the broker ended with exit code {process.wait()}")
        finally:
            process.terminate()
            process.wait(30)


def row() -> tuple[str, str]:
    """Medians and spread, as text."""
    results = [start_once() for _ in range(ROUNDS)]
    seconds = sorted(result[0] for result in results)
    memory = statistics.median(result[1] for result in results)
    spread = f"{statistics.median(seconds):.2f} s ({seconds[0]:.2f}..{seconds[-1]:.2f})"
    return spread, f"{memory:.0f} MB"


def main() -> None:
    """Prints one line."""
    spread, memory = row()
    print(f"an empty broker serves after {spread}, {memory} of its own memory")


if __name__ == "__main__":
    main()
