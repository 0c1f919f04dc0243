"""Programs are replaced under load, and back: nothing is lost, no send fails."""

from pathlib import Path

from tests.fault.program_changes import go_all_the_way, go_half_way_and_back


def test_half_of_a_group_gets_the_next_program_and_the_former_one_back(tmp_path: Path) -> None:
    assert go_half_way_and_back(tmp_path) > 0


def test_a_group_gets_the_next_program_and_writes_its_format(tmp_path: Path) -> None:
    assert go_all_the_way(tmp_path) > 0
