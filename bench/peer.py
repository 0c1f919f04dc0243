"""LedgerMQ's group beside Apache's, on one machine, under the same loads in turns.

python -m bench.peer [--java 4.9.3] [--heap 1024] [--rounds 3] [--seconds 4] [--only ROW ...]
                     [--quick] [--groups ours pure java] [--before DIR] [--json FILE] [--page]

Needs Java 17 and Maven. `--java 4.9.7` works too; 4.9.8 has no broker on Maven Central. Each round
starts one group of three, warms it until its rate rises no more, runs every row, kills the leader
and stops the group, and then does the same with the next: members of Apache's group that idle take
a core by themselves. A cell gives median and spread; a ratio is the median of the rounds' ratios.
The load programs (`load.py`, `pull_load.py`) cost the same for all; Apache's own are JVMs and cost
more. `--page` writes the table into docs/performance.md, `--json` the figures for `bench.charts`.
`--groups ours before --before DIR` measures this checkout beside another one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import page
from bench.peer_rows import (
    CATCH_UP,
    HEAP,
    QUICK,
    ROWS,
    SYNC,
    Plan,
    catch_up,
    measure,
    measure_synced,
    smallest_heap,
    tried,
)
from bench.peer_table import Outcome, Report, text_of
from bench.peers import BEFORE, OURS, PURE, PURE_ENVIRONMENT, Peer, java, java_name, ours

Opened = Callable[[], contextlib.AbstractContextManager[Peer]]
KEYS = (*(row.key for row in ROWS), CATCH_UP, SYNC, HEAP)
TITLES = {
    **{row.key: row.title for row in ROWS},
    CATCH_UP: "a follower 1 GiB behind, nobody sending: s until in step",
    SYNC: "one broker, SYNC_FLUSH: 1 KiB, 256 in flight",
    HEAP: "memory of the leader with the smallest heap, MB",
}
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}


@dataclass(frozen=True)
class Group:
    """One of the groups: how to start three members, and one that syncs."""

    name: str
    three: Opened
    synced: Opened


def groups_of(options: argparse.Namespace) -> list[Group]:
    """The groups that were chosen."""
    flush = "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH"
    sync_words = tuple(f"{key}={value}" for key, value in SYNC_FLUSH.items())
    made = {
        name: Group(
            title,
            functools.partial(run, f"flushDiskType={flush}"),
            functools.partial(run, *sync_words, members=1),
        )
        for name, title, run in (
            ("ours", OURS, functools.partial(ours, name=OURS)),
            ("pure", PURE, functools.partial(ours, name=PURE, environment=PURE_ENVIRONMENT)),
            ("before", BEFORE, functools.partial(ours, name=BEFORE, checkout=options.before)),
        )
    }
    made["java"] = Group(
        java_name(options.java),
        functools.partial(java, options.java, options.heap),
        # Without DLedger, which leaves the sync to chance.
        functools.partial(java, options.java, options.heap, members=0, keys=SYNC_FLUSH),
    )
    return [made[name] for name in options.groups]


def run_group(group: Group, plan: Plan, keys: Collection[str]) -> dict[str, Outcome]:
    """One round of one group; what cannot be measured is there with its reason."""
    found: dict[str, Outcome] = {}
    of_three = [key for key in keys if key not in (CATCH_UP, SYNC, HEAP)]
    if of_three:
        try:
            with group.three() as peer:
                found |= measure(peer, plan, of_three)
        except Exception as error:
            reason = f"the group did not run: {error}"
            found |= {key: {"failed": reason[:300]} for key in of_three if key not in found}
    if CATCH_UP in keys:
        found[CATCH_UP] = tried(functools.partial(run_alone, group.three, catch_up, plan))
    if SYNC in keys:
        found[SYNC] = tried(functools.partial(run_alone, group.synced, measure_synced, plan))
    return found


def run_alone(opened: Opened, run: Callable[[Peer, Plan], Outcome], plan: Plan) -> Outcome:
    """One row of a group that is started for it."""
    with opened() as peer:
        return run(peer, plan)


def run_rounds(groups: Sequence[Group], plan: Plan, rounds: int, keys: Collection[str]) -> Report:
    """Runs all rows; returns the figures by row and group, one for each round."""
    report = Report(groups=[group.name for group in groups], titles=TITLES)
    for number in range(rounds):
        # None is always the first.
        first = number % len(groups)
        for group in (*groups[first:], *groups[:first]):
            for key, outcome in run_group(group, plan, keys).items():
                report.add(key, group.name, outcome)
            print(f"round {number + 1} of {group.name} is done", file=sys.stderr, flush=True)
    return report


def add_smallest_heap(report: Report, options: argparse.Namespace) -> None:
    """Measures Apache's group with little memory, once; ours is what the row of memory says."""
    seconds, name = options.seconds, java_name(options.java)
    report.add(HEAP, name, tried(lambda: smallest_heap(options.java, seconds)))
    for group in report.groups:
        for outcome in report.results.get("memory", {}).get(group, []):
            if group != name:
                report.add(HEAP, group, outcome)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="LedgerMQ beside Apache RocketMQ with DLedger")
    parser.add_argument("--java", default="4.9.3", metavar="RELEASE")
    parser.add_argument("--heap", type=int, default=1024, metavar="MIB", help="of each Java broker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one load")
    parser.add_argument("--sync", action="store_true", help="LedgerMQ's three with SYNC_FLUSH")
    parser.add_argument("--groups", nargs="+", choices=("ours", "pure", "java", "before"),
                        metavar="GROUP", default=["ours", "pure", "java"],
                        help="of ours, pure, java, before")  # fmt: skip
    parser.add_argument("--before", type=Path, metavar="DIR",
                        help="another checkout, its kernel built, for `before`")  # fmt: skip
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--only", nargs="+", choices=KEYS, metavar="ROW", help=" ".join(KEYS))
    rows.add_argument("--quick", action="store_true", help=f"only {' '.join(QUICK)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--page", action="store_true", help="renew docs/performance.md")
    options = parser.parse_args()
    if "before" in options.groups and options.before is None:
        parser.error("the group `before` needs --before DIR")
    return options


def main() -> int:
    """Measures and prints the table."""
    options = parsed()
    keys = options.only or (QUICK if options.quick else KEYS)
    machine = page.machine()
    plan = Plan(seconds=options.seconds)
    report = run_rounds(groups_of(options), plan, options.rounds, keys)
    if HEAP in keys and "java" in options.groups:
        add_smallest_heap(report, options)
    report.about = {
        **machine,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "java": options.java,
        "heap_mb": options.heap,
        "flush": "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH",
    }
    text = text_of(report)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(report.document(), indent=1) + "\n")
    if options.page:
        page.renew("peer", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
