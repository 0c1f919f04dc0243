"""The kernel: which modules are compiled, that they are fresh, and how the sources are taken."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq import kernel

ROOT = Path(kernel.__file__).parent.parent


def test_setup_compiles_the_modules_that_kernel_names() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text())
    named = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES"
    )
    assert tuple(named) == tuple(kernel.MODULES)


def test_every_module_with_types_for_c_is_named() -> None:
    typed = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "ledgermq").rglob("*.pxd")
        if path.with_suffix(".py").exists()
    }
    assert typed == set(kernel.MODULES)


@pytest.mark.parametrize("module", kernel.MODULES)
def test_compiled_form_is_not_older_than_its_source(module: str) -> None:
    compiled = kernel.compiled_of(module)
    if compiled is None:
        pytest.skip(
            "nothing was compiled: no C compiler at installation (Debian: gcc, python3-dev)"
        )
    source = Path(kernel.source_of(module))
    newest = max(source.stat().st_mtime, source.with_suffix(".pxd").stat().st_mtime)
    assert os.path.getmtime(compiled) >= newest, f"{module} was changed: make install"


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


def test_source_that_was_changed_after_it_was_compiled_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, compiled = tmp_path / "x.py", tmp_path / "x.so"
    monkeypatch.setattr(kernel, "source_of", lambda module: str(source))
    monkeypatch.setattr(kernel, "compiled_of", lambda module: str(compiled))
    source.write_text("")
    compiled.write_text("")
    os.utime(compiled, (1_000_000, 1_000_000))
    os.utime(source, (1_000_030, 1_000_030))
    assert not kernel.is_stale("x")
    os.utime(source, (1_000_090, 1_000_090))
    assert kernel.is_stale("x")
    finders: list[object] = []
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delenv(kernel.PURE_VARIABLE, raising=False)
    kernel.choose()
    (finder,) = finders
    assert tuple(getattr(finder, "modules", ())) == kernel.MODULES
    assert kernel.describe().startswith("pure Python (changed since")
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
