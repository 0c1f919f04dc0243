"""Wheels as pip builds them: with a C compiler that works, and where there is none."""

import os
import platform
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from ledgermq import kernel

ROOT = Path(kernel.__file__).parent.parent
# What the compiler makes of it does not matter here, and takes a fifth of the time so.
QUICKLY = "-O0 -w"
BUILT_FROM = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


def wheel_names(folder: Path, compiler: str, tag: str = "", **variables: str) -> list[str]:
    """Builds a wheel of a copy of this tree, whose name ends so; returns the files in it."""
    source = folder / "source"
    unwanted = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "ledgermq", source / "ledgermq", ignore=unwanted)
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source)
    words = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    done = subprocess.run(
        [sys.executable, *words, "--wheel-dir", str(folder), str(source)],
        env={**os.environ, "LEDGERMQ_PURE": "", "CC": compiler, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    assert wheel.stem.endswith(tag)
    return zipfile.ZipFile(wheel).namelist()


def stems(names: list[str], end: str) -> set[str]:
    return {name.partition(".")[0].replace("/", ".") for name in names if name.endswith(end)}


def test_without_a_compiler_the_sources_are_installed(tmp_path: Path) -> None:
    # No C is made for a compiler that fails: that takes half a minute, without a word.
    names = wheel_names(tmp_path, "/bin/false", "-py3-none-any")
    assert stems(names, ".so") == set()
    assert stems(names, ".py") >= {*kernel.MODULES, "ledgermq.cli.main"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here (Debian: gcc)")
def test_with_a_compiler_every_module_of_the_kernel_is_there_twice(tmp_path: Path) -> None:
    names = wheel_names(tmp_path, "cc", CFLAGS=QUICKLY)
    assert stems(names, ".so") == set(kernel.MODULES)
    assert stems(names, ".py") >= set(kernel.MODULES)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here (Debian: gcc)")
def test_one_compiled_wheel_serves_every_later_python(tmp_path: Path) -> None:
    machine = platform.machine()
    names = wheel_names(
        tmp_path, "cc", f"-cp311-abi3-linux_{machine}", LEDGERMQ_ABI3="1", CFLAGS=QUICKLY
    )
    assert stems(names, ".abi3.so") == set(kernel.MODULES)
    assert not any(name.endswith(".so") and ".abi3." not in name for name in names)


def test_a_pure_wheel_serves_every_machine(tmp_path: Path) -> None:
    names = wheel_names(tmp_path, "cc", "-py3-none-any", LEDGERMQ_PURE="1")
    assert stems(names, ".so") == set()
    assert stems(names, ".pxd") >= set(kernel.MODULES)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make is here (Debian: make)")
def test_a_fresh_copy_installs_for_a_broker_what_a_broker_needs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)

    def planned(target: str) -> str:
        words = ["make", "-n", "-C", str(tmp_path), "--assume-new=pyproject.toml", target]
        needed = ("pyproject.toml", "constraints.txt", "packaging/set_up.py", "setup.py")
        for name in needed:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / "ledgermq").mkdir(exist_ok=True)
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert "set_up.py broker" in planned("run") and "set_up.py tests" not in planned("run")
    assert "ledgermq up --round-trip" in planned("run")
    for target in ("test", "interop", "install"):
        assert "set_up.py broker" in planned(target) and "set_up.py tests" in planned(target)


def test_a_broker_needs_nothing_that_only_tests_use() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    unwanted = {"pyspark", "pyarrow", "numpy", "pytest", "mypy", "matplotlib", "crcmod", "celery"}
    assert not unwanted & {name.partition(">")[0] for name in project["dependencies"]}
