"""Runs the benchmarks and renews the tables in docs/performance.md.

python -m bench                 everything (about ten minutes)
python -m bench --quick         a third of the time for each row
"""

from __future__ import annotations

import subprocess
import sys

from bench import end_to_end, limits, page, startup, sync_ratio
from bench.page import markdown

PARTS = ("bench_codec", "bench_record", "bench_send", "bench_append", "bench_dispatch")


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"{page.machine_line(page.machine())} Limits of the same run: copy "
        f"{limits.copy_mb_per_second():,.0f} MB/s, loopback "
        f"{limits.loopback_mb_per_second():,.0f} MB/s, durable 256 KiB writes "
        f"{limits.write_mb_per_second(sync_each=True):,.0f} MB/s."
    )


def run_module(name: str, *words: str) -> str:
    """What another benchmark prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *words], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"bench.{name} failed: {done.stderr[-2000:]}")
    return done.stdout.rstrip()


def main() -> int:
    """Measures, prints and writes."""
    is_quick = "--quick" in sys.argv
    seconds = 1.5 if is_quick else 4.0
    sections = [machine()]
    spread, memory = startup.row()
    sections.append(
        f"An empty broker serves {spread} after its start and has {memory} of its own memory."
    )
    rows = end_to_end.table(seconds)
    sections.append("### Replicated sends\n\n" + markdown(end_to_end.COLUMNS, rows))
    sections.append(sync_ratio.row(3 if is_quick else 7, seconds))
    pulls = [end_to_end.pull_row(seconds)]
    sections.append("### Pulls\n\n" + markdown(end_to_end.PULL_COLUMNS, pulls))
    recovered = run_module("recovery", *(["128"] if is_quick else []))
    sections.append("### Recovery\n\n" + recovered)
    for part in PARTS:
        sections.append(f"### Parts: {part}\n\n```\n{run_module(part)}\n```")
    text = "\n\n".join(sections)
    print(text)
    page.renew("measured", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
