"""What is said of measured turns."""

from __future__ import annotations

from pathlib import Path

from bench.turns import (
    HEAD,
    Phase,
    Stop,
    Turn,
    Written,
    read_lines,
    summarize,
    table_row,
    worth_telling,
    write_line,
)


def turn(
    wall_ms: float,
    *,
    end_s: float = 10.0,
    waiting_ms: float = 0.0,
    computing_ms: float = 0.0,
    others_ms: float = 0.0,
    place: str = "",
    syncs: int = 0,
    is_exempt: bool = False,
) -> Turn:
    return Turn(end_s, wall_ms, waiting_ms, computing_ms, others_ms, 0, place, syncs, 0, is_exempt)


def test_a_turn_is_told_apart_by_what_its_thread_did() -> None:
    told = turn(100.0, waiting_ms=60.0, computing_ms=10.0)
    assert (told.own_ms, told.still_ms) == (40.0, 30.0)
    # Another thread had the interpreter for a part of it, and no processor.
    told = told._replace(others_waiting_ms=25.0)
    assert (told.own_ms, told.still_ms) == (15.0, 5.0)
    told = told._replace(others_waiting_ms=900.0)
    assert (told.own_ms, told.still_ms) == (10.0, 0.0)
    # The clocks are read one after the other.
    assert turn(1.0, computing_ms=1.1).still_ms == 0.0


def test_of_a_line_the_longest_of_each_kind_and_all_with_the_disk_are_kept() -> None:
    short, late = turn(1.0), turn(90.0, waiting_ms=90.0)
    computing, still = turn(50.0, computing_ms=50.0), turn(40.0)
    syncing, opening = turn(2.0, syncs=1), turn(900.0, is_exempt=True)
    kept = worth_telling([short, late, computing, still, syncing, opening])
    assert set(kept) == {late, computing, still, syncing, opening}


def test_what_was_written_is_read_but_for_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "n0.turns"
    written = Written(7, 10.0, 3, [turn(5.0, place="a < b")], {"cuts": 1})
    path.write_text(write_line(written) + write_line(written)[:-9])
    assert list(read_lines(path)) == [written]


def test_a_phase_has_the_longest_turns_of_all_its_processes() -> None:
    lines = [
        Written(1, 9.0, 5, [turn(500.0, end_s=8.9)], {"cuts": 9}),
        Written(1, 11.0, 5, [turn(30.0, waiting_ms=25.0), turn(9.0, syncs=1)], {"cuts": 1}),
        Written(2, 12.0, 5, [turn(20.0, place="here")], {"cuts": 2, "rolls": 1}),
    ]
    found = summarize(lines, Phase("x", 9.5, 12.0), [])
    assert (found.count, found.syncs, found.done) == (10, 1, {"cuts": 3, "rolls": 1})
    assert found.longest is not None and found.longest.wall_ms == 30.0
    assert found.longest_own is not None and found.longest_own.wall_ms == 20.0
    row = table_row("a phase", found)
    assert row == "| a phase | 10 | 30.0 | 20.0 | 20.0 | 1 | 0 | 0 | 3 cuts, 1 rolls | here |"
    assert len(row.split("|")) == len(HEAD.splitlines()[0].split("|"))


def test_openings_and_stopped_processes_are_left_out() -> None:
    lines = [
        Written(1, 11.0, 2, [turn(900.0, is_exempt=True), turn(3000.0), turn(4.0, end_s=6)], {}),
        Written(2, 11.0, 1, [turn(5.0)], {}),
    ]
    found = summarize(lines, Phase("x", 0.0, 20.0), [Stop(1, 7.5, 9.5)])
    assert found.longest is not None and found.longest.wall_ms == 5.0


def test_a_phase_without_a_turn_has_its_row() -> None:
    assert table_row("none", summarize([], Phase("x", 0.0, 1.0), [])).startswith("| none | 0 |")
