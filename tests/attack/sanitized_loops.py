"""The compiled loops under AddressSanitizer: built in a copy of the tree, then fed with bad input.

    python -m tests.attack.sanitized_loops [--cases N] [--seed S]

A loop that reads or writes beside its bytes ends the process, with a report on standard error.
Where there is no C compiler that can do so, the command says it and ends with 2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_FLAGS: Final = "-fsanitize=address -fno-omit-frame-pointer -g -O1"
# What holds both forms of a loop to the same answers, whatever it is given.
_TESTS: Final = (
    "tests/property/test_quick_frames.py", "tests/property/test_entry_loops.py",
    "tests/property/test_run_loops.py", "tests/property/test_row_loops.py",
    "tests/property/test_index_loops.py", "tests/property/test_encoding.py",
    "tests/property/test_answering.py", "tests/property/test_put_rows.py",
    "tests/property/test_signed_frames.py",
)  # fmt: skip


def find_runtime() -> str | None:
    """Returns the library of the sanitizer that belongs to the compiler, None without one."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        return None
    found = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return found if os.path.isabs(found) and os.path.exists(found) else None


def build(tree: Path) -> None:
    """Copies the tree and compiles its loops in place.

    Raises:
        subprocess.CalledProcessError: the compiler refused.
    """
    ignored = shutil.ignore_patterns(".venv", ".git", "*.so", "build", ".mypy_cache", "__pycache__")
    shutil.copytree(_ROOT, tree, ignore=ignored)
    environment = {**os.environ, "CFLAGS": _FLAGS, "LDFLAGS": "-fsanitize=address"}
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tree,
        env=environment,
        check=True,
    )


def main() -> int:
    """Builds, and runs fuzz and property tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    runtime = find_runtime()
    if runtime is None:
        sys.stderr.write("no C compiler with AddressSanitizer (libasan) is here: nothing was run\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="ledgermq-asan-") as folder:
        tree = Path(folder) / "tree"
        build(tree)
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "LD_PRELOAD": runtime,
            # Python keeps what it allocates to its end, and hands out small blocks by itself.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "PYTHONMALLOC": "malloc",
        }
        environment.pop("LEDGERMQ_PURE", None)
        is_compiled = "from ledgermq import kernel; raise SystemExit(not kernel.is_compiled())"
        fuzz = ["-m", "tests.attack.fuzz", "--cases", str(options.cases)]
        commands = (
            ["-c", is_compiled],
            [*fuzz, "--seed", str(options.seed), "--ports", "broker,ledger"],
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", *_TESTS],
        )
        for words in commands:
            done = subprocess.run([sys.executable, *words], cwd=tree, env=environment, check=False)
            if done.returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
