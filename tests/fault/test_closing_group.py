"""A group is closed step by step under load: no send fails, and then nobody else gets in."""

from pathlib import Path

import pytest

from tests.fault.closing_group import go_there


@pytest.mark.timeout(600)
def test_a_group_goes_from_open_to_closed_under_load(tmp_path: Path) -> None:
    assert go_there(tmp_path) > 0
