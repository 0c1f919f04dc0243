"""Less than a core for some processes: what many machines do, seen on one of few cores.

By the `cpu` controller of Linux; needs root and version 1 of control groups.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_ROOT: Final = Path("/sys/fs/cgroup/cpu")
_PERIOD_US: Final = 100_000
# Against 1024 of anything else: on a busy machine, too, they get what they may have.
_SHARES: Final = 50_000


def why_no_quota() -> str:
    """Returns why no processor can be divided here, "" when it can."""
    if not (_ROOT / "cpu.cfs_quota_us").exists():
        return f"there is no {_ROOT}/cpu.cfs_quota_us (control groups of version 1)"
    return "" if os.access(_ROOT, os.W_OK) else f"{_ROOT} may not be written to: be root"


class CpuQuotas:
    """Groups of processes with a share of a core each; use it in a `with` block.

    The processes have to end within the block: a group is removed when nobody is in it.
    """

    def __init__(self) -> None:
        self._groups: list[Path] = []

    def limit(self, pid: int, cores: float) -> None:
        """Gives a process, and all that it starts from now on, so much of a core together."""
        group = _ROOT / f"ledgermq-{os.getpid()}-{pid}"
        group.mkdir()
        self._groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD_US)))
        (group / "cpu.shares").write_text(str(_SHARES))
        (group / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for group in self._groups:
            # Who has not ended goes on in the group above.
            for pid in (group / "cgroup.procs").read_text().split():
                (_ROOT / "cgroup.procs").write_text(pid)
            group.rmdir()
