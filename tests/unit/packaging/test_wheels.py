"""What is released: the same files give the same bytes."""

from __future__ import annotations

import importlib.util
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def wheels() -> Any:
    """The program; of no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "packaging/wheels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packed(folder: Path, names: list[str], date_s: int) -> Path:
    """Sources with these files, made in this order, at this time."""
    top = folder / "product-1"
    for name in names:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of {name}")
        os.utime(path, (date_s, date_s))
    sources = folder / "product-1.tar.gz"
    with tarfile.open(sources, "w:gz") as archive:
        for name in names:
            archive.add(top / name, f"product-1/{name}")
    return sources


def test_sources_do_not_depend_on_when_and_in_which_order_they_were_made(
    wheels: Any, tmp_path: Path
) -> None:
    names = ["setup.py", "product/a.py", "product/b.py"]
    one = packed(tmp_path / "one", names, 10**9)
    other = packed(tmp_path / "other", names[::-1], 2 * 10**9)
    assert one.read_bytes() != other.read_bytes()
    for sources in (one, other):
        wheels.pack_again(sources, 1_600_000_000)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        members = {member.name: member for member in archive if member.isfile()}
        assert {*members} == {f"product-1/{name}" for name in names}
        assert {member.mtime for member in members.values()} == {1_600_000_000}
        found = archive.extractfile("product-1/setup.py")
        assert found is not None and found.read() == b"of setup.py"


def test_what_an_earlier_build_left_is_not_told(wheels: Any, tmp_path: Path) -> None:
    """setuptools lists more sources in a tree that was built before."""
    made = []
    for number, told in enumerate(("a.py\n", "a.py\nb.py\n")):
        folder = tmp_path / str(number)
        sources = packed(folder, ["a.py", "product.egg-info/SOURCES.txt"], 1_700_000_000)
        listed = folder / "product-1/product.egg-info/SOURCES.txt"
        listed.write_text(told)
        with tarfile.open(sources, "w:gz") as archive:
            archive.add(folder / "product-1", "product-1")
        wheels.pack_again(sources, 1_700_000_000)
        made.append(sources.read_bytes())
    assert made[0] == made[1]
    with tarfile.open(sources) as archive:
        member = archive.extractfile("product-1/product.egg-info/SOURCES.txt")
        assert member is not None
        assert member.read() == b"a.py\nproduct.egg-info/SOURCES.txt\n"
