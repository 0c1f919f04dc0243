"""Processor time of processes and all that they started, from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def tree_cpu_seconds(root: int) -> float:
    """CPU seconds that a process and all below it have used, those that have ended included."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            # It has ended in between.
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        # Own time, user and system, and that of children that were waited for.
        used[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total
