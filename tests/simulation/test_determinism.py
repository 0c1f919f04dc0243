"""One seed, two processes with different hash seeds: the same events in the same order."""

import os
import subprocess
import sys

SEEDS = (3, 18, 92, 173)
SCRIPT = """
import sys
from tests.simulation.cluster import run_seed
print("\\n".join(run_seed(int(seed)).digest() for seed in sys.argv[1:]))
"""


def digests(hash_seed: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return found.stdout.split()


def test_a_seed_fixes_everything() -> None:
    first = digests("1")
    assert len(set(first)) == len(SEEDS)
    assert digests("2") == first
