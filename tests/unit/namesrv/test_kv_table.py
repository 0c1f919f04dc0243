"""The key-value table and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.namesrv.errors import ConfigItemNotFoundError, LimitError
from ledgermq.namesrv.kv_table import KvTable


def test_items_survive_a_restart_in_upstreams_form(tmp_path: Path) -> None:
    path = tmp_path / "made" / "kvConfig.json"
    table = KvTable(path)
    table.load()
    table.put("NS", "k", "wert-ü")
    table.put("NS", "gone", "x")
    table.delete("NS", "gone")
    assert json.loads(path.read_text()) == {"configTable": {"NS": {"k": "wert-ü"}}}
    again = KvTable(path)
    again.load()
    assert again.get("NS", "k") == "wert-ü"
    assert again.items("NS") == {"k": "wert-ü"}


def test_missing_items_are_named(tmp_path: Path) -> None:
    table = KvTable(tmp_path / "kv.json")
    with pytest.raises(ConfigItemNotFoundError, match="No config item, Namespace: NS Key: k"):
        table.get("NS", "k")
    with pytest.raises(ConfigItemNotFoundError, match="No config item, Namespace: NS$"):
        table.items("NS")


@pytest.mark.parametrize("text", ['{"configTable": 3}', "[]", "{"])
def test_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kv.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        KvTable(path).load()


def test_failed_write_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    table = KvTable(path)
    table.put("NS", "k", "1")
    path.with_name("kv.json.tmp").mkdir()
    with pytest.raises(OSError):
        table.put("NS", "k", "2")
    assert table.get("NS", "k") == "1"


def test_table_stays_smaller_than_what_a_start_reads(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    table = KvTable(path, bytes_max=500)
    with pytest.raises(LimitError, match=r"bytes of the key-value file: 5\d\d .* limit of 500"):
        for number in range(100):
            table.put("NS", f"key-{number}", "value")
    count = len(table.items("NS"))
    assert count > 10 and path.stat().st_size <= 500
    with pytest.raises(LimitError):
        table.put("NS", "key-0", "x" * 500)
    again = KvTable(path, bytes_max=500)
    again.load()
    assert again.items("NS") == table.items("NS") and again.get("NS", "key-0") == "value"
    again.delete("NS", "key-0")
    assert len(again.items("NS")) == count - 1
