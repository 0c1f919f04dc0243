"""The client's own distribution: the wheel, with what it declares to need, and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "packaging/client/README.md"
# What a broker needs and a client does not.
OTHERS = ("twisted", "construct", "crcmod", "crc32c", "cryptography", "yaml", "cython")
# Where the system is no POSIX these are missing.
POSIX_ONLY = ("register_at_fork", "fork", "getuid", "geteuid", "fchmod", "fdatasync", "getloadavg")
POSIX_MODULES = ("fcntl", "pwd", "grp", "resource", "termios")


def build_wheel(folder: Path) -> Path:
    """Builds the wheel from a copy of the tree, as its sources are laid out."""
    tree = folder / "tree"
    unwanted = shutil.ignore_patterns("*.so", "__pycache__", "build", "*.egg-info")
    shutil.copytree(ROOT / "packaging/client", tree, ignore=unwanted)
    shutil.copytree(ROOT / "ledgermq", tree / "ledgermq", ignore=unwanted)
    words = ["-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    done = subprocess.run(
        [sys.executable, *words, "--wheel-dir", str(folder), str(tree)],
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def link_distribution(name: str, site: Path) -> None:
    """Makes an installed distribution of this environment one of the other, too."""
    files = importlib.metadata.files(name)
    assert files is not None
    here = Path(str(importlib.metadata.distribution(name).locate_file("")))
    tops = {file.parts[0] for file in files} - {"..", "__pycache__"}
    for top in tops:
        (site / top).symlink_to(here / top)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the client and what it declares to need."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3.*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    needed = re.findall(r"^Requires-Dist: ([\w-]+)$", text, re.MULTILINE)
    assert sorted(needed) == ["lz4", "msgspec", "zstandard"]
    for name in needed:
        link_distribution(name, site)
    return folder / "bin/python"


def run(python: Path, *words: str) -> str:
    """What that Python prints; it knows nothing of this tree."""
    unknown = ("PYTHONPATH", "LEDGERMQ_PURE")
    environment = {key: value for key, value in os.environ.items() if key not in unknown}
    done = subprocess.run(
        [str(python), *words],
        cwd=python.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_holds_the_client_and_none_of_a_broker(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    rooms = {name.split("/")[1] for name in names}
    assert rooms == {
        "__init__.py",
        "kernel.py",
        "py.typed",
        "client",
        "protocol",
        "celery",
        "django",
    }
    assert not any("transport" in name for name in names if "/protocol/" in name)
    # Files of secrets are judged by the modes of a POSIX system; only brokers have them.
    assert "ledgermq/protocol/private_file.py" not in names
    assert all(name.endswith((".py", "py.typed")) for name in names)


def test_every_module_of_it_can_be_imported(python: Path) -> None:
    """But for those of its extras."""
    program = f"""
import pkgutil, importlib, sys
import ledgermq
for found in pkgutil.walk_packages(ledgermq.__path__, "ledgermq.", onerror=lambda name: None):
    if not found.name.startswith(("ledgermq.celery", "ledgermq.client.otel", "ledgermq.django")):
        importlib.import_module(found.name)
print(ledgermq.__file__)
print(*sorted({{*{OTHERS!r}}} & sys.modules.keys()))
"""
    file, others = run(python, "-c", program).split("\n")[:2]
    assert file.startswith(str(python.parents[1])) and others == ""


def test_its_first_program_sends_and_consumes(python: Path, name_server: str) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    program = program.replace("127.0.0.1:9876", name_server).replace('"orders"', '"lone-orders"')
    lines = run(python, "-c", program).splitlines()
    assert lines[0].startswith("SendResult(") and lines[1:] == ["b'hello'"]


def test_it_loads_where_the_system_is_no_posix(python: Path) -> None:
    program = f"""
import asyncio, os, socket, subprocess, tempfile, sys
for name in {POSIX_ONLY!r}:
    delattr(os, name)
for name in {POSIX_MODULES!r}:
    sys.modules[name] = None
import ledgermq.client, ledgermq.client.blocking
print("loaded")
"""
    assert run(python, "-c", program) == "loaded\n"


def test_a_users_code_is_checked_strictly(python: Path, tmp_path: Path) -> None:
    """As the wheel is typed, mypy follows it into the environment."""
    pages = README.read_text() + (ROOT / "docs/tutorial.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    # A test of the tutorial has a broker in it.
    samples = [program for program in programs if "ledgermq.testing" not in program]
    assert len(samples) == 7
    names = [f"sample_{number}.py" for number in range(len(samples))]
    for name, program in zip(names, samples, strict=True):
        (tmp_path / name).write_text(program)
    wrong = "from ledgermq.client import Message\n\nMessage(17, b'hello')\n"
    (tmp_path / "wrong.py").write_text(wrong)
    words = ["--strict", "--no-incremental", "--python-executable", str(python)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, *names, "wrong.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    complaints = [line for line in done.stdout.splitlines() if "error" in line]
    assert "wrong.py:3" in complaints[0] and "[arg-type]" in complaints[0], done.stdout
    assert complaints[1:] == ["Found 1 error in 1 file (checked 8 source files)"]
