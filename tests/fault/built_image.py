"""The image as `make image` makes it, of the sources as they are now."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = _ROOT / "build" / "image"
# What is in it.
_SOURCES: Final = ("ledgermq/**/*.py", "packaging/image/*", "constraints.txt", "pyproject.toml")


class NotBuiltError(Exception):
    """It cannot be made here; the text says why."""


def built_image() -> Path:
    """Returns the folder with `root` and `ledgermq.tar.gz`; makes them where sources are newer.

    Raises:
        NotBuiltError: it cannot be made here.
    """
    archive = FOLDER / "ledgermq.tar.gz"
    newest = max(path.stat().st_mtime for word in _SOURCES for path in _ROOT.glob(word))
    if not archive.exists() or archive.stat().st_mtime < newest:
        done = subprocess.run(["make", "image"], cwd=_ROOT, capture_output=True, text=True)
        if done.returncode or not archive.exists():
            raise NotBuiltError(f"make image: {(done.stdout + done.stderr).strip()[-500:]}")
    return FOLDER
