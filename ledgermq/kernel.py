"""The kernel: modules that exist twice, as source and as what a C compiler made of it.

Python takes the compiled forms, which stand beside the sources. With `LEDGERMQ_PURE=1` in the
environment the sources are taken: to see which of them a difference comes from, and for tests,
which run both ways. Both give the same values for the same arguments. The modules know each other's
classes, so they are taken all in one form: where one was not compiled, or was compiled of another
source than the one beside it, as in a checkout that was brought up to date and not installed again,
the sources are taken, too.

A compiled module says what it was made of: it contains a mark with the digest of its source and of
the types for C. Dates tell nothing: a copy keeps them or makes them anew, and a checkout of an
older commit makes old sources new. The mark is read before the module is loaded, for to load it is
to run it.

Imported with the package itself, so it imports next to nothing.
"""

import hashlib
import mmap
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Final

# setup.py compiles them.
MODULES: Final[tuple[str, ...]] = (
    "ledgermq.broker.sends.answering",
    "ledgermq.broker.sends.gathering",
    "ledgermq.commitlog.consume_queue",
    "ledgermq.commitlog.index_loops",
    "ledgermq.commitlog.row",
    "ledgermq.commitlog.row_loops",
    "ledgermq.commitlog.run_loops",
    "ledgermq.commitlog.encoding",
    "ledgermq.dledger.entry_loops",
    "ledgermq.protocol.column_loops",
    "ledgermq.protocol.quick_frames",
    "ledgermq.protocol.signed_frames",
)
PURE_VARIABLE: Final = "LEDGERMQ_PURE"

# In a compiled module this comes before the digest, in hexadecimal digits.
DIGEST_MARK: Final = b"ledgermq-kernel-digest:"
# Types for C that several modules share and that have no source.
SHARED_TYPES: Final[tuple[str, ...]] = (
    "ledgermq.commitlog.prefetch",
    "ledgermq.protocol.hash_calls",
)

_DIGITS: Final = 64
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
        if is_packed():
            # Whoever reads the archive finds the sources, and sources only.
            return None
        spec = ModuleSpec(name, SourceFileLoader(name, source), origin=source)
        spec.has_location = True
        return spec


def is_packed() -> bool:
    """Tells whether the package was imported out of an archive, as workers of Spark get it."""
    return not os.path.isdir(_FOLDER)


def source_of(module: str) -> str:
    """Returns the path of the source of a module of the kernel."""
    return os.path.join(_FOLDER, *module.split(".")) + ".py"


def compiled_of(module: str) -> str | None:
    """Returns the path of the compiled form of a module; None when it was not compiled."""
    stem = source_of(module).removesuffix(".py")
    return next((stem + end for end in EXTENSION_SUFFIXES if os.path.isfile(stem + end)), None)


def digest_of(module: str) -> str:
    """Returns the digest of what a module is compiled of: its source, and all types for C.

    All types, because a compiled module knows the layout of the classes of others.

    Raises:
        OSError: a file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    types = (source_of(name).removesuffix(".py") + ".pxd" for name in (*MODULES, *SHARED_TYPES))
    for path in (source_of(module), *types):
        with open(path, "rb") as file:
            content = file.read()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.hexdigest()


def is_stale(module: str) -> bool:
    """Tells whether a module was compiled of anything else than what stands beside it."""
    compiled = compiled_of(module)
    if compiled is None:
        return False
    try:
        return _marked_digest(compiled) != digest_of(module)
    except OSError:
        # Without its types nobody can tell; without its source nothing could be taken instead.
        return os.path.isfile(source_of(module))


def _marked_digest(path: str) -> str:
    """Returns the digest that a compiled module contains; empty when it has none."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return ""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = content.find(DIGEST_MARK)
            if found < 0:
                return ""
            start = found + len(DIGEST_MARK)
            return content[start : start + _DIGITS].decode("ascii", "replace")


def why_pure() -> str:
    """Returns why the sources are taken; empty when they are not."""
    if os.environ.get(PURE_VARIABLE, "") not in ("", "0"):
        return f"{PURE_VARIABLE} is set"
    if is_packed():
        return f"nothing compiled is taken out of an archive: {_FOLDER}"
    missing = [module for module in MODULES if compiled_of(module) is None]
    if missing:
        names = "nothing" if len(missing) == len(MODULES) else f"all but {', '.join(missing)}"
        return f"at installation {names} was compiled: a C compiler is needed"
    stale = [module for module in MODULES if is_stale(module)]
    return f"compiled of other sources: {', '.join(stale)}" if stale else ""


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
