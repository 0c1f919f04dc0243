"""The kernel: modules that exist twice, as source and as what a C compiler made of it.

Python takes the compiled forms, which stand beside the sources. With `LEDGERMQ_PURE=1` in the
environment the sources are taken: to see which of them a difference comes from, and for tests,
which run both ways. Both give the same values for the same arguments. The modules know each other's
classes, so they are taken all in one form: where one was not compiled, or was changed after it was,
in a checkout that was brought up to date and not installed again, the sources are taken, too.

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
    "ledgermq.commitlog.consume_queue",
    "ledgermq.commitlog.index_loops",
    "ledgermq.commitlog.row",
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


def why_pure() -> str:
    """Returns why the sources are taken; empty when they are not."""
    if os.environ.get(PURE_VARIABLE, "") not in ("", "0"):
        return f"{PURE_VARIABLE} is set"
    missing = [module for module in MODULES if compiled_of(module) is None]
    if missing:
        names = "nothing" if len(missing) == len(MODULES) else f"all but {', '.join(missing)}"
        return f"at installation {names} was compiled: a C compiler is needed"
    stale = [module for module in MODULES if is_stale(module)]
    return f"changed since they were compiled: {', '.join(stale)}" if stale else ""


def choose() -> None:
    """Has sources taken where they must be; called before any room is imported."""
    if why_pure():
        sys.meta_path.insert(0, _SourceFinder(MODULES))


def is_compiled() -> bool:
    """Tells which form was chosen in this process."""
    return not any(isinstance(finder, _SourceFinder) for finder in sys.meta_path)


def describe() -> str:
    """Returns which form runs in this process, in a few words."""
    return "compiled" if is_compiled() else f"pure Python ({why_pure()})"
