"""Wheels as pip builds them: with a C compiler that works, and where there is none."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ledgermq import kernel

ROOT = Path(kernel.__file__).parent.parent
BUILT_FROM = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


def wheel_names(folder: Path, compiler: str) -> list[str]:
    """Builds a wheel of a copy of this tree; returns the files in it."""
    source = folder / "source"
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "ledgermq", source / "ledgermq", ignore=unwanted)
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source)
    words = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    done = subprocess.run(
        [sys.executable, *words, "--wheel-dir", str(folder), str(source)],
        env={**os.environ, "CC": compiler},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def stems(names: list[str], end: str) -> set[str]:
    return {name.partition(".")[0].replace("/", ".") for name in names if name.endswith(end)}


def test_without_a_compiler_the_sources_are_installed(tmp_path: Path) -> None:
    names = wheel_names(tmp_path, "/bin/false")
    assert stems(names, ".so") == set()
    assert stems(names, ".py") >= {*kernel.MODULES, "ledgermq.cli.main"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here (Debian: gcc)")
def test_with_a_compiler_every_module_of_the_kernel_is_there_twice(tmp_path: Path) -> None:
    names = wheel_names(tmp_path, "cc")
    assert stems(names, ".so") == set(kernel.MODULES)
    assert stems(names, ".py") >= set(kernel.MODULES)
