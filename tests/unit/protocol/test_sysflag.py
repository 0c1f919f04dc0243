"""The bits of sysFlag."""

import pytest

from ledgermq.protocol import sysflag


@pytest.mark.parametrize(
    ("sys_flag", "queued"),
    [
        (0x0, True),
        (0x4, False),
        (0x8, True),
        (0xC, False),
        (0x3F1, True),
        (0x3FD, False),
    ],
)
def test_only_none_and_commit_take_a_place_in_a_queue(sys_flag: int, queued: bool) -> None:
    assert sysflag.is_queued(sys_flag) is queued
