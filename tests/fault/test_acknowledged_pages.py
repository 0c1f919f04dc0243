"""SYNC_FLUSH as the kernel sees it: what is acknowledged is on the disk."""

from pathlib import Path

import pytest

from tests.fault.acknowledged_pages import measure
from tests.fault.page_cache import why_silent

SENDS = 20_000


@pytest.mark.parametrize("is_plain", [False, True], ids=["ledger", "plain log"])
def test_no_page_of_an_acknowledged_send_is_dirty(tmp_path: Path, is_plain: bool) -> None:
    reason = why_silent(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    assert measure(tmp_path, SENDS, is_plain=is_plain) == []
