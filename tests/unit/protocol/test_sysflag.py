"""The bits of sysFlag."""

import pytest

from ledgermq.protocol import sysflag


@pytest.mark.parametrize(
    ("sys_flag", "transaction", "queued"),
    [
        (0x0, sysflag.TRANSACTION_NONE, True),
        (0x4, sysflag.TRANSACTION_PREPARED, False),
        (0x8, sysflag.TRANSACTION_COMMIT, True),
        (0xC, sysflag.TRANSACTION_ROLLBACK, False),
        (0x3F1, sysflag.TRANSACTION_NONE, True),
        (0x3FD, sysflag.TRANSACTION_ROLLBACK, False),
    ],
)
def test_only_none_and_commit_take_a_place_in_a_queue(sys_flag, transaction, queued):
    assert sysflag.transaction_type(sys_flag) == transaction
    assert sysflag.is_queued(sys_flag) is queued
