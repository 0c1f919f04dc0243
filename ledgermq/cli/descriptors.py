"""File descriptors of this process: as many as the system lets it have.

A connection is one, an open queue file two. Shells and service managers often start a program with
1,024 although it may have many more, and a process that runs out of them can neither accept a
client nor write a message.
"""

import resource
from typing import Final

# Enough for any broker; some systems have no limit worth the name.
DESCRIPTORS_MAX: Final = 1 << 17


def use_all_descriptors() -> None:
    """Raises the soft limit of this process to the hard one, as far as that is of use."""
    wanted = descriptors_to_have()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptors_to_have() -> int:
    """Returns how many a program of ours will have here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if soft < 0 or hard < 0 else max(soft, min(hard, DESCRIPTORS_MAX))
