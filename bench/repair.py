"""How long a bit that flipped on a disk stays there: found by the scrub, repaired by peers.

python -m bench.repair [9] [64]     flips, MiB of log

One bit at a time, in turn in the log of the leader, in the log of a follower and in a queue of a
follower, while messages come in. Measured is the time from the flip to the member's word that its
files are whole again. The scrub reads 1 MiB a second by default, which alone decides when damage is
found; here it reads as fast as it may, so that the time is that of the repair.
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.catch_up import ENTRY_BYTES_MORE, FILL_BYTES, TOPIC, load
from bench.cluster import Running, cluster

SETTINGS = (
    "scrubBytesPerSecond=1073741824",
    "mappedFileSizeCommitLog=8388608",
    "mappedFileSizeDLedgerIndex=1310720",
    "mappedFileSizeConsumeQueue=60000",
)
LOOK_S = 0.02
PAUSE = threading.Event()
PATIENCE_S = 300.0
# The member says so when it serves again, and when a queue was made again by a start.
WHOLE_AGAIN = "recovered, it votes"
OPENED = "store opened"


def flip(path: Path, position: int) -> None:
    """Turns one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def wait(is_done: Callable[[], bool], what: str) -> float:
    """Waits; returns the seconds."""
    begun = time.perf_counter()
    while not is_done():
        if time.perf_counter() - begun > PATIENCE_S:
            raise RuntimeError(f"{what} takes too long")
        PAUSE.wait(LOOK_S)
    return time.perf_counter() - begun


def repaired(running: Running, name: str, path: Path, position: int, said: str) -> float:
    """Flips one bit; returns the seconds until the member says that it is whole."""
    log = running.data / "logs" / f"{name}.log"
    before = log.read_text(errors="replace").count(said)
    flip(path, position)
    return wait(
        lambda: log.read_text(errors="replace").count(said) > before, f"the repair of {path}"
    )


def all_serve(running: Running) -> bool:
    """Tells whether one leads and two follow."""
    roles = sorted(str(broker["role"]) for broker in running.brokers() if broker["pid"])
    return roles == ["FOLLOWER", "FOLLOWER", "LEADER"]


def main() -> None:
    """Prints one line for each kind of file."""
    words = sys.argv[1:]
    flips = int(words[0]) if words else 9
    fill_bytes = (int(words[1]) if len(words) > 1 else 64) << 20
    rng = random.Random(1)
    seconds: dict[str, list[float]] = {
        "log of the leader": [],
        "log of a follower": [],
        "queue": [],
    }
    with cluster(3, SETTINGS) as running:
        running.create_topic(TOPIC, 4)
        grown = 0
        while grown < fill_bytes:
            grown += int(
                load(running, 1.0, FILL_BYTES)["messages"] * (FILL_BYTES + ENTRY_BYTES_MORE)
            )
        for number in range(flips):
            wait(lambda: all_serve(running), "the group")
            kind = list(seconds)[number % len(seconds)]
            leader = str(running.leader()["id"])
            follower = rng.choice([i for i in ("n0", "n1", "n2") if i != leader])
            name = leader if kind == "log of the leader" else follower
            if kind == "queue":
                path = sorted((running.data / name / "consumequeue" / TOPIC / "1").iterdir())[0]
                position, said = 20 * rng.randrange(100) + 6, OPENED
            else:
                path = sorted((running.data / name / f"dledger-{name}" / "data").iterdir())[0]
                position, said = rng.randrange(1_000_000), WHOLE_AGAIN
            seconds[kind].append(repaired(running, name, path, position, said))
            load(running, 1.0)
    for kind, values in seconds.items():
        print(
            f"{kind}, {len(values)} flips in {grown / 2**20:,.0f} MiB: found and repaired after"
            f" {statistics.median(values):.1f} s, longest {max(values):.1f} s"
        )


if __name__ == "__main__":
    main()
