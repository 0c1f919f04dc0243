"""The page of metrics: what stands in it, and that it comes in parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgermq.broker.watching.families import FAMILIES, shared_labels_of
from ledgermq.broker.watching.page import Point, wants_open_metrics, write_page
from ledgermq.broker.watching.ranking import most_active
from ledgermq.measures.histogram import Histogram

COMMON = {
    "cluster": "C",
    "broker": 'a"\\\n',
    "member": "n0",
    "node_type": "broker",
    "node_id": "a",
    "storage_type": "local",
    "storage_medium": "disk",
    "env": "test",
}


def page(*groups: tuple[str, list[Point]]) -> str:
    return b"".join(
        write_page([(FAMILIES[name], points) for name, points in groups], COMMON)
    ).decode()


def test_gauge_has_help_type_and_all_labels() -> None:
    assert page(("ledgermq_raft_term", [((), 7)])) == (
        "# HELP ledgermq_raft_term Term of this member.\n"
        "# TYPE ledgermq_raft_term gauge\n"
        'ledgermq_raft_term{cluster="C",broker="a\\"\\\\\\n",member="n0",env="test"} 7\n'
    )


def test_names_of_clients_cannot_break_the_page() -> None:
    evil = 'a"} 1\nevil{x="\\'
    lines = page(("ledgermq_delayed_messages", [((evil,), 1), (("%s",), 2)])).splitlines()
    assert len(lines) == 4
    assert lines[2].endswith(',level="a\\"} 1\\nevil{x=\\"\\\\"} 1')
    assert lines[3].endswith(',level="%s"} 2')


def test_family_without_points_is_left_out() -> None:
    assert page(("ledgermq_raft_term", []), ("ledgermq_raft_is_leader", [None])) == ""


def test_histogram_is_added_up() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 9.0):
        histogram.observe(value)
    lines = page(("ledgermq_reactor_lag_seconds", [((), histogram)])).splitlines()[2:]
    assert [line.rpartition("le=")[2] for line in lines[:3]] == [
        '"0.5"} 2', '"1.0"} 3', '"+Inf"} 4',
    ]  # fmt: skip
    assert [line.rpartition(" ")[2] for line in lines[3:]] == ["10.5", "4"]


def test_parts_are_small_and_a_turn_may_end_without_a_point() -> None:
    def points() -> Iterator[Point]:
        for number in range(1000):
            yield (str(number),), number
        yield None
        yield ("last",), 1

    family = FAMILIES["ledgermq_delayed_messages"]
    parts = list(write_page([(family, points())], COMMON))
    assert len(parts) == 4
    assert max(part.count(b"\n") for part in parts) <= 402
    assert b"".join(parts).count(b"\n") == 1003
    assert b"".join(parts).count(b"# TYPE") == 1


def test_names_and_labels_of_the_table_are_those_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert family.kind in ("counter", "gauge", "histogram")
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert family.help.endswith(".") and "\n" not in family.help
        assert not set(family.labels) & {*shared_labels_of(name), "le"}


def test_busiest_have_series_of_their_own() -> None:
    assert most_active({"a": 1, "b": 2}, 2) is None
    assert most_active({"a": 1, "b": 5, "c": 2}, 2) == {"b", "c"}


def test_open_metrics_name_counters_by_their_family_and_have_an_end() -> None:
    groups = [
        (FAMILIES["ledgermq_raft_leader_changes_total"], [((), 3)]),
        (FAMILIES["ledgermq_raft_term"], [((), 7)]),
    ]
    lines = b"".join(write_page(groups, COMMON, is_open=True)).decode().splitlines()
    assert lines[0].startswith("# HELP ledgermq_raft_leader_changes ")
    assert lines[1] == "# TYPE ledgermq_raft_leader_changes counter"
    assert lines[2].startswith("ledgermq_raft_leader_changes_total{") and lines[2].endswith("} 3")
    assert lines[4] == "# TYPE ledgermq_raft_term gauge"
    assert lines[-1] == "# EOF"
    assert b"".join(write_page([], COMMON, is_open=True)) == b"# EOF\n"


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,*/*;q=0.8", False),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", True),
        ("text/plain, application/openmetrics-text;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        ("application/openmetrics-text;version=9.9,text/plain;q=0.1", False),
        (";;,,=;q", False),
        # Of so many kinds the last is not looked at.
        ("," * 10_000 + "application/openmetrics-text", False),
    ],
)
def test_open_metrics_are_for_those_who_like_them(accept: str, is_open: bool) -> None:
    assert wants_open_metrics(accept) is is_open
