"""An audit of stores of many groups: members of both kinds, light queues, and its reports."""

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs.audit_page import audit_page
from ledgermq.spark.jobs.store_audit import StoreAudit
from ledgermq.spark.segment_audit import QueueUnits
from tests.spark.fleet import GROUPS, PLANTED, make_fleet, not_found, plant, words_of
from tests.spark.fleet import run_here as run
from tests.spark.log_files import flip, make_record, write_ledger
from tests.spark.planted import COUNT

NAMES = [name for names in GROUPS.values() for name in names]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Eight good stores."""
    make_fleet(tmp_path)
    return tmp_path


def test_ten_defects_in_eight_stores_are_all_found(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(*words_of(fleet), "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stores = [line for line in lines if line["report"] == "stores"]
    assert [(line["entries"], line["defects"]) for line in stores] == [(COUNT, [])] * 8
    assert sum(map(len, PLANTED.values())) == 10 and set(PLANTED) == set(NAMES)
    plant(fleet)
    page = fleet / "report.html"
    assert run(*words_of(fleet), "--json", "--html", page) == 1
    out = capsys.readouterr().out
    assert not_found(out) == []
    groups = [json.loads(line) for line in out.splitlines() if '"groups"' in line]
    assert [(line["group"], line["stores"]) for line in groups] == [
        ("light", 2),
        ("mixed", 3),
        ("orders", 3),
    ]
    assert all(line["defects"] for line in groups)
    assert all(name in page.read_text() for name in NAMES)


def test_a_member_of_java_differs_in_checksums_of_entries_only(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(f"mixed={fleet / 'mixed'}") == 0
    out = capsys.readouterr().out
    assert out.count("0 defects") == 3
    (note,) = [line for line in out.splitlines() if "note" in line]
    assert re.search(r"b2-java differs from .*b0 in \d+ pieces, but not in what entries hold", note)


def test_what_the_checksums_of_java_do_not_cover_is_found_by_its_replicas(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time of birth of a message: only the body has a checksum there."""
    flip(fleet / "mixed" / "b2-java" / "dledger-b2-java" / "data" / f"{8192:020d}", 48 + 47)
    capsys.readouterr()
    assert run(f"mixed={fleet / 'mixed'}") == 1
    (defect,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("  defect: ")
    ]
    assert "b2-java differs from" in defect


def test_stores_of_several_groups_are_no_replicas_of_each_other(fleet: Path) -> None:
    both = [fleet / "orders" / "a0", fleet / "light" / "c0"]
    assert run(*both) == 1
    assert run(f"orders={both[0]}", f"light={both[1]}") == 0
    with pytest.raises(OptionError, match="each store once"):
        run(f"orders={both[0]}", f"light={both[0]}")


def test_what_java_leaves_out_of_a_light_queue_is_no_defect(tmp_path: Path) -> None:
    """A broker of 4.9.3 counts from 0 again after its restart: until it is where it was, nothing
    goes into the queue.
    """
    records = [
        make_record(
            "Orders", number, properties=_light_text(number if number < 30 else number - 30)
        )
        for number in range(80)
    ]
    write_ledger(tmp_path / "n0" / "dledger-n0", records, committed_index=79)
    assert run(tmp_path / "n0", "--rebuild", tmp_path / "made") == 0
    (file,) = (tmp_path / "made" / "dledger-n0" / "consumequeue" / "%LMQ%a" / "0").iterdir()
    units = file.read_bytes().rstrip(b"\0")
    # 30 of the first life; of the second those from 30 on.
    assert -(-len(units) // 20) == 50


def _light_text(number: int) -> str:
    return f"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x01{number}"


class Page(HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_is_whole_in_itself_and_obeys_no_name_in_a_store() -> None:
    hostile = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e"
    store = StoreAudit(
        directory=f"/stores/{hostile.replace('/', '.')}",
        group=hostile,
        defects=[hostile],
        notes=[hostile],
        queues={(hostile, 0): QueueUnits(first_offset=0, units=bytearray(40))},
    )
    text = audit_page([store], datetime.now(UTC))
    page = Page()
    page.feed(text)
    assert not page.tags & {"script", "img", "link", "iframe", "object", "a"}
    assert not page.names & {"src", "href", "onerror", "xlink:href"}
    assert "\x1b" not in text and "\u202e" not in text
    assert "<script>alert(1)</script>" in page.text and "\\x1b[2J\\u202e" in page.text
    assert "default-src 'none'" in text
