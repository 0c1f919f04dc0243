"""Names of versions, which clients and brokers send as ordinals of MQVersion.java.

From V4_1_0_SNAPSHOT (232) on each release takes two ordinals, the snapshot and the release, and
each minor version ten releases.
"""

from typing import Final

_FIRST: Final = 232
_RELEASES_OF_MINOR: Final = 10
# Minor versions of 4.x from 4.1 on; 5.0 comes next.
_MINORS_OF_4: Final = 9
_V4_9_0: Final = 393
_LAST: Final = 999


def version_name(ordinal: int) -> str:
    """Returns e.g. V4_9_3 of 399; older and unknown ones are told by their number."""
    if not _FIRST <= ordinal <= _LAST:
        return f"ordinal {ordinal}"
    release, is_release = divmod(ordinal - _FIRST, 2)
    minor, patch = divmod(release, _RELEASES_OF_MINOR)
    major, minor = (4, minor + 1) if minor < _MINORS_OF_4 else (5, minor - _MINORS_OF_4)
    return f"V{major}_{minor}_{patch}" + ("" if is_release else "_SNAPSHOT")


def is_outdated(ordinal: int) -> bool:
    """Tells whether a client is older than 4.9.0."""
    return ordinal < _V4_9_0
