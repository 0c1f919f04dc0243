"""One load in many short slices, so that a small difference shows on a machine that is not quiet.

The load program stays, with its connections and its frames, and is asked for one slice after the
other; what is compared takes turns between them, so that whatever changes slowly (the store's
size, other programs, the processor's pace) meets both sides alike. Of each slice there are the
messages, the waits and the processor time that the kernel counted for a process.

Run as a process: ``python -m bench.slices --address 127.0.0.1:10911 --topic T``; each line of
standard input is the seconds of a slice, each line of standard output its figures.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from bench.cluster import cpu_seconds
from bench.load import Load, build_frames

# Waits are counted in steps of 10 microseconds.
_STEPS_IN_MS: Final = 100
_DRAWS: Final = 400
_SEED: Final = 19
# Never set.
_PAUSE: Final = threading.Event()


class Slice(NamedTuple):
    """What a slice took."""

    messages: int
    # Processor time of the watched process.
    cpu_s: float
    # Answers by their wait, in steps.
    waits: Counter[int]

    @property
    def cpu_us(self) -> float:
        """The same for one message."""
        return self.cpu_s * 1e6 / self.messages


class Slices:
    """The load program; use it in a `with` block."""

    def __init__(self, address: str, topic: str, pid: int, *words: str) -> None:
        """Begins with the block.

        Args:
            address: of the broker.
            topic: that is there already.
            pid: of the process whose time is told.
            words: more words of the program.
        """
        self._words = ("--address", address, "--topic", topic, *words)
        self._pid = pid
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.slices", *self._words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, seconds: float) -> Slice:
        """Runs a slice.

        Raises:
            RuntimeError: a message was refused, or none was answered.
        """
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        before = cpu_seconds(self._pid)
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        took_s = cpu_seconds(self._pid) - before
        if not line:
            raise RuntimeError("the load program has ended")
        told = json.loads(line)
        if told["refused"] or not told["messages"]:
            raise RuntimeError(f"refused: {told['first_refusal']}")
        waits = Counter({int(step): count for step, count in told["waits"].items()})
        return Slice(told["messages"], took_s, waits)


def pause(seconds: float) -> None:
    """Does nothing for so long."""
    _PAUSE.wait(seconds)


def median_of(ratios: Sequence[float]) -> str:
    """Returns the median and where it lies with 95 %, by the ranks of a sample."""
    ordered = sorted(ratios)
    count = len(ordered)
    off = int(0.98 * count**0.5)
    low, high = max((count - 1) // 2 - off, 0), min(count // 2 + off, count - 1)
    return f"{statistics.median(ordered):.3f} ({ordered[low]:.3f}..{ordered[high]:.3f})"


def cost_ratio(pairs: Sequence[tuple[Slice, Slice]]) -> str:
    """Returns the ratio of the processor time for a message over all first slices to that over all
    second ones, and where it lies with 95 %: pairs are drawn again and again.
    """
    chance = random.Random(_SEED)

    def cost(slices: Sequence[Slice]) -> float:
        return sum(one.cpu_s for one in slices) / sum(one.messages for one in slices)

    def ratio(chosen: Sequence[tuple[Slice, Slice]]) -> float:
        first, second = zip(*chosen, strict=True)
        return cost(first) / cost(second)

    drawn = sorted(ratio(chance.choices(pairs, k=len(pairs))) for _ in range(_DRAWS))
    low, high = drawn[int(0.025 * _DRAWS)], drawn[int(0.975 * _DRAWS) - 1]
    return f"{ratio(pairs):.3f} ({low:.3f}..{high:.3f})"


def quantile_ms(slices: Sequence[Slice], share: float) -> float:
    """Returns the wait below which this share of all answers lies."""
    pooled: Counter[int] = Counter()
    for one in slices:
        pooled.update(one.waits)
    wanted = share * sum(pooled.values())
    seen = 0
    for step, count in sorted(pooled.items()):
        seen += count
        if seen >= wanted:
            return step / _STEPS_IN_MS
    return 0.0


def quantile_ratio(pairs: Sequence[tuple[Slice, Slice]], share: float) -> str:
    """Returns the ratio of a quantile over all first slices to that over all second ones, and
    where it lies with 95 %: pairs are drawn again and again, as often as there are.
    """
    chance = random.Random(_SEED)

    def ratio(chosen: Sequence[tuple[Slice, Slice]]) -> float:
        first, second = zip(*chosen, strict=True)
        return quantile_ms(first, share) / quantile_ms(second, share)

    drawn = sorted(ratio(chance.choices(pairs, k=len(pairs))) for _ in range(_DRAWS))
    low, high = drawn[int(0.025 * _DRAWS)], drawn[int(0.975 * _DRAWS) - 1]
    return f"{ratio(pairs):.3f} ({low:.3f}..{high:.3f})"


def main() -> int:
    """Runs slices until standard input ends."""
    parser = argparse.ArgumentParser(description="a load in slices, as standard input asks")
    parser.add_argument("--address", required=True, help="host:port of the leader")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=64, help="requests in flight, each")
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    frames = build_frames(options.topic, options.queues, options.body_bytes)
    load = Load((host, int(port)), frames, options.connections, options.in_flight)
    for line in sys.stdin:
        load.answered, load.latencies_ms = 0, []
        load.run(float(line))
        waits: Counter[int] = Counter()
        for wait_ms, count in load.latencies_ms:
            waits[int(wait_ms * _STEPS_IN_MS)] += count
        told = {
            "messages": load.answered,
            "refused": load.refused,
            "first_refusal": load.first_refusal,
            "waits": waits,
        }
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
