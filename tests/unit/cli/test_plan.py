"""What a load takes: the arithmetic, beside what is really stored, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.plan import Load, measured_slowness, plan_of
from tests.unit.cli.stores import make_store, position_of

LOAD = Load(
    rate=1000, size=1024, keys=1, groups=2, retention_s=3600, members=3, queues=64, is_sync=False
)


def test_disk_and_network_follow_from_the_load() -> None:
    plan = plan_of(LOAD, 1.0)
    assert plan.broker_groups == 1
    stored = 1024 + 191 + 80 + 20 + 40
    assert plan.disk_write_bytes_s == 1000 * stored
    assert plan.disk_bytes == pytest.approx(1000 * stored * 3600 / 0.7, abs=1)
    assert plan.network_out_bytes_s == 1000 * (1024 + 191) * 4


def test_more_than_a_core_takes_more_groups() -> None:
    plan = plan_of(LOAD._replace(rate=200_000), 1.0)
    one = plan_of(LOAD, 1.0)
    assert plan.broker_groups > 1 and plan.leader_cores <= 0.6
    assert plan.disk_bytes * plan.broker_groups == pytest.approx(200 * one.disk_bytes, rel=0.001)
    assert plan_of(LOAD._replace(rate=200_000), 2.0).broker_groups > plan.broker_groups


def test_one_member_has_no_followers() -> None:
    plan = plan_of(LOAD._replace(members=1, groups=0), 1.0)
    assert plan.follower_cores == 0.0 and plan.network_out_bytes_s == 0


def test_the_bytes_on_disk_are_those_of_a_real_store(tmp_path: Path) -> None:
    """Topic and properties are assumed to have a hundred bytes together; these have fewer."""
    count = 30
    path, offset = position_of(make_store(tmp_path, count + 1, body_bytes=1020), count)
    # The first entry opens the term and holds no message.
    entry = (int(path.name) + offset) / (count - 1)
    index, queue, key = 32, 20, 40
    planned = plan_of(LOAD._replace(rate=1), 1.0).disk_write_bytes_s
    assert entry + index + queue + key == pytest.approx(planned, rel=0.08)


def test_this_machine_is_measured() -> None:
    assert 0.05 < measured_slowness() < 500


def test_a_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--rate", "5000", "--size", "1KiB", "--retention", "7d", "--like-measured"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "broker groups        1 of 3" in text and "168 h, 70% full" in text
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["broker_groups"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "0"], "--rate is 0, allowed are 0.001 to"),
        (["--members", "10"], "--members is 10, allowed are 1 to 9"),
        (["--retention", "11y"], "'11y' is not a time"),
        (["--size", "-1"], "is not bytes"),
        (["--retention", "0s"], "--retention is 0, allowed are 1 to"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["plan", "--rate", "1", "--size", "1", *words])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code in (1, 2)
    assert said in capsys.readouterr().err
