"""The kernel: modules that exist twice, as source and as what a C compiler made of it.

Python takes the compiled form where there is one, as it stands beside the source. With
`LEDGERMQ_PURE=1` in the environment the source is taken: to see which of them a difference comes
from, and for tests, which run both ways. Both give the same values for the same arguments. A source
that was changed after it was compiled, in a checkout that was brought up to date and not installed
again, is taken, too: what was compiled of it is of another release.

Imported with the package itself, so it imports next to nothing.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Final

# setup.py compiles the same ones.
MODULES: Final[tuple[str, ...]] = (
    "ledgermq.broker.answering",
    "ledgermq.broker.gathering",
    "ledgermq.commitlog.index_loops",
    "ledgermq.commitlog.row_loops",
    "ledgermq.commitlog.run_loops",
    "ledgermq.commitlog.encoding",
    "ledgermq.dledger.entry_loops",
    "ledgermq.protocol.plain_frames",
)
PURE_VARIABLE: Final = "LEDGERMQ_PURE"

# An installation writes its files in any order, but in less time than this.
_INSTALLATION_S: Final = 60.0
_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class _SourceFinder:
    """Finds the sources of modules, before anybody finds what was compiled of them."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns where the source of a module is; None for all other modules."""
        if name not in self.modules:
            return None
        source = source_of(name)
        spec = ModuleSpec(name, SourceFileLoader(name, source), origin=source)
        spec.has_location = True
        return spec


def source_of(module: str) -> str:
    """Returns the path of the source of a module of the kernel."""
    return os.path.join(_FOLDER, *module.split(".")) + ".py"


def compiled_of(module: str) -> str | None:
    """Returns the path of the compiled form of a module; None when it was not compiled."""
    stem = source_of(module).removesuffix(".py")
    return next((stem + end for end in EXTENSION_SUFFIXES if os.path.isfile(stem + end)), None)


def is_stale(module: str) -> bool:
    """Tells whether the source of a module was changed after it was compiled."""
    compiled = compiled_of(module)
    if compiled is None:
        return False
    return os.path.getmtime(source_of(module)) - os.path.getmtime(compiled) > _INSTALLATION_S


def choose() -> None:
    """Has sources taken where they must be; called before any room is imported."""
    if os.environ.get(PURE_VARIABLE, "") not in ("", "0"):
        modules = MODULES
    else:
        modules = tuple(module for module in MODULES if is_stale(module))
    if modules:
        sys.meta_path.insert(0, _SourceFinder(modules))


def describe() -> str:
    """Returns which form runs in this process, in a few words."""
    taken = {name for finder in sys.meta_path for name in getattr(finder, "modules", ())}
    if taken.issuperset(MODULES):
        return f"pure Python ({PURE_VARIABLE} is set, or it was compiled of another release)"
    missing = [name for name in MODULES if name in taken or compiled_of(name) is None]
    if not missing:
        return "compiled"
    if len(missing) == len(MODULES):
        return "pure Python (no C compiler was there at installation)"
    return f"compiled, but not {', '.join(missing)}"
