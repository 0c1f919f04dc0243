"""The kernel: which modules are compiled, and of what, and how the sources are taken."""

import os
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ledgermq import kernel

ROOT = Path(kernel.__file__).parent.parent


def test_every_module_with_types_for_c_is_named() -> None:
    typed = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "ledgermq").rglob("*.pxd")
    }
    assert typed == {*kernel.MODULES, *kernel.SHARED_TYPES}
    assert not any(Path(kernel.source_of(module)).exists() for module in kernel.SHARED_TYPES)


@pytest.mark.parametrize("module", kernel.MODULES)
def test_compiled_form_is_of_its_source(module: str) -> None:
    if kernel.compiled_of(module) is None:
        pytest.skip(
            "nothing was compiled: no C compiler at installation (Debian: gcc, python3-dev)"
        )
    assert not kernel.is_stale(module), f"{module} was changed: make install"


def _files(pure: str) -> tuple[str, list[str]]:
    """What a process with that variable says it runs, and the files of the modules it took."""
    program = (
        "import importlib, sys; from ledgermq import kernel; print(kernel.describe());"
        "[print(importlib.import_module(name).__file__) for name in kernel.MODULES]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, kernel.PURE_VARIABLE: pure},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    said, *files = done.stdout.splitlines()
    return said, files


def test_sources_are_taken_when_the_environment_says_so() -> None:
    said, files = _files("1")
    assert said.startswith("pure Python (LEDGERMQ_PURE is set")
    assert files == [kernel.source_of(module) for module in kernel.MODULES]


@pytest.mark.parametrize("unset", ["", "0"])
def test_what_was_compiled_is_taken_otherwise(unset: str) -> None:
    said, files = _files(unset)
    missing = [name for name in kernel.MODULES if kernel.compiled_of(name) is None]
    stale = [name for name in kernel.MODULES if not missing and kernel.is_stale(name)]
    if missing or stale:
        assert said.startswith("pure Python (")
        assert all(name in said for name in stale)
        assert files == [kernel.source_of(name) for name in kernel.MODULES]
    else:
        assert said == "compiled"
        assert files == [kernel.compiled_of(name) for name in kernel.MODULES]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel of two modules, `p.x` and `p.y`, "compiled" of the sources beside them."""
    folder = tmp_path / "p"
    folder.mkdir()
    monkeypatch.setattr(kernel, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(kernel, "MODULES", ("p.x", "p.y"))
    monkeypatch.setattr(kernel, "SHARED_TYPES", ("p.shared",))
    monkeypatch.delenv(kernel.PURE_VARIABLE, raising=False)
    for name in ("x.py", "y.py", "x.pxd", "y.pxd", "shared.pxd"):
        (folder / name).write_text(f"of {name}")
    for name in ("x", "y"):
        digest = kernel.digest_of(f"p.{name}").encode()
        compiled = b"\x7fELF" + bytes(70) + kernel.DIGEST_MARK + digest + b"\0code"
        (folder / (name + EXTENSION_SUFFIXES[0])).write_bytes(compiled)
    return folder


def test_a_compiled_form_is_taken_whatever_the_dates_say(sources: Path) -> None:
    for path in sources.iterdir():
        os.utime(path, (10**9, 10**9) if path.suffix == ".so" else (2 * 10**9, 2 * 10**9))
    assert kernel.why_pure() == ""


@pytest.mark.parametrize(
    ("changed", "named"),
    [("x.py", "p.x"), ("y.py", "p.y"), ("x.pxd", "p.x, p.y"), ("shared.pxd", "p.x, p.y")],
)
def test_sources_are_taken_when_one_byte_differs_and_the_dates_do_not(
    sources: Path, changed: str, named: str
) -> None:
    path = sources / changed
    before = path.stat()
    path.write_text(path.read_text().replace("of", "ot"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kernel.why_pure() == f"compiled of other sources: {named}"


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF without a mark", b"\x7fELF" + kernel.DIGEST_MARK, kernel.DIGEST_MARK * 2],
)
def test_a_compiled_form_without_a_digest_is_not_taken(sources: Path, content: bytes) -> None:
    (sources / ("y" + EXTENSION_SUFFIXES[0])).write_bytes(content)
    assert kernel.why_pure() == "compiled of other sources: p.y"


def test_without_its_types_a_compiled_form_proves_nothing(sources: Path) -> None:
    (sources / "shared.pxd").unlink()
    assert kernel.why_pure() == "compiled of other sources: p.x, p.y"


def test_stale_forms_are_passed_over_at_import(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sources / "x.py").write_text("changed")
    finders: list[object] = []
    monkeypatch.setattr(sys, "meta_path", finders)
    kernel.choose()
    (finder,) = finders
    assert tuple(getattr(finder, "modules", ())) == kernel.MODULES
    assert kernel.describe() == "pure Python (compiled of other sources: p.x)"
    assert not kernel.is_compiled()


def test_all_sources_are_taken_where_one_was_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = kernel.MODULES[2]
    monkeypatch.setattr(kernel, "compiled_of", lambda name: None if name == missing else __file__)
    monkeypatch.setattr(kernel, "is_stale", lambda name: False)
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.delenv(kernel.PURE_VARIABLE, raising=False)
    kernel.choose()
    assert f"all but {missing} was compiled" in kernel.describe()


@pytest.mark.parametrize("pure", ["", "1"])
def test_a_package_in_an_archive_is_taken_as_sources(tmp_path: Path, pure: str) -> None:
    """As workers of Spark get it by `--py-files`; modules for C cannot be loaded out of one."""
    archive = tmp_path / "ledgermq.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "ledgermq").rglob("*"):
            if path.suffix in (".py", ".pxd", ".so"):
                packed.write(path, path.relative_to(ROOT))
    program = (
        "import importlib; from ledgermq import kernel; print(kernel.describe());"
        "[print(importlib.import_module(name).__file__) for name in kernel.MODULES]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, kernel.PURE_VARIABLE: pure, "PYTHONPATH": str(archive)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said, *files = done.stdout.splitlines()
    reason = "LEDGERMQ_PURE is set" if pure else "nothing compiled is taken out of an archive"
    assert said.startswith(f"pure Python ({reason}")
    assert files == [f"{archive}/{name.replace('.', '/')}.py" for name in kernel.MODULES]
