"""Processor time of processes, with all that they started or without, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

# How often all processes are looked at, where some of them end meanwhile.
_TRIES = 5


def tree_cpu_seconds(root: int) -> float:
    """CPU seconds that a process and all below it have used, those that have ended included."""
    # Own time, user and system, and that of children that were waited for.
    return sum(_seconds_of_tree(root, slice(11, 15)).values())


def own_cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has used by itself, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def tree_own_seconds(root: int) -> dict[int, float]:
    """CPU seconds that a process and each below it have used by themselves, as far as they live."""
    return _seconds_of_tree(root, slice(11, 13))


def _seconds_of_tree(root: int, fields_added: slice) -> dict[int, float]:
    for _ in range(_TRIES):
        children: dict[int, list[int]] = {}
        used: dict[int, float] = {}
        is_whole = True
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:
                # It has ended in between. What it used is its parent's now, which was perhaps read
                # before it was told so.
                is_whole = False
                continue
            pid = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            used[pid] = sum(map(int, fields[fields_added])) / os.sysconf("SC_CLK_TCK")
        if is_whole:
            break
    found, waiting = {}, [root]
    while waiting:
        pid = waiting.pop()
        found[pid] = used.get(pid, 0.0)
        waiting += children.get(pid, [])
    return found
