"""Runs seeds by hand: python -m tests.simulation.run FIRST [END]."""

import sys
import time
import traceback

from tests.simulation.cluster import run_seed


def main(arguments: list[str]) -> int:
    first = int(arguments[0])
    end = int(arguments[1]) if len(arguments) > 1 else first + 1
    failed: list[int] = []
    counts: dict[str, int] = {}
    started = time.monotonic()
    for seed in range(first, end):
        try:
            for kind, count in run_seed(seed).counts.items():
                counts[kind] = counts.get(kind, 0) + count
        except Exception:
            failed.append(seed)
            if len(failed) <= 3:
                traceback.print_exc()
    seconds = time.monotonic() - started
    sys.stdout.write(f"{end - first} seeds in {seconds:.1f} s, {counts}\nfailed: {failed}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
