"""Processor time of processes, with all that they started or without, from /proc."""

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


def own_cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has used by itself, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def tree_own_seconds(root: int) -> dict[int, float]:
    """CPU seconds that a process and each below it have used by themselves, as far as they live."""
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
        used[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    found, waiting = {}, [root]
    while waiting:
        pid = waiting.pop()
        found[pid] = used.get(pid, 0.0)
        waiting += children.get(pid, [])
    return found
