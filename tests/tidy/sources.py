"""The source tree as the tidy tests see it: paths, texts and syntax trees.

A check is a function from a `Source` to a list of complaints, so that it can be shown a bad sample
as well as the real tree.
"""

import ast
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

# Directories that tools make; nothing in them is ours, nor in a hidden one but for this.
GENERATED = frozenset({"__pycache__", "build", "dist", "node_modules", "target", "data"})
HIDDEN_BUT_OURS = frozenset({".ci"})
# In a second working tree of a repository a file says where the repository is.
GIT_POINTER = ".git"


@dataclass(frozen=True)
class Source:
    """One Python file: its path below the root, with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def _parsed(self) -> ast.Module | SyntaxError:
        # Millions of nodes that all stay: collections of garbage between them find nothing.
        gc.disable()
        try:
            return ast.parse(self.text, filename=self.path, feature_version=(3, 11))
        except SyntaxError as error:
            return error
        finally:
            gc.enable()

    @property
    def syntax_error(self) -> SyntaxError | None:
        """Why the text is not Python as the oldest version that we run on reads it."""
        return self._parsed if isinstance(self._parsed, SyntaxError) else None

    @property
    def tree(self) -> ast.Module:
        """The syntax tree; empty when there is a `syntax_error`."""
        if isinstance(self._parsed, SyntaxError):
            return ast.Module(body=[], type_ignores=[])
        return self._parsed

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree in the order of `ast.walk`, listed once for all checks."""
        return list(ast.walk(self.tree))

    @property
    def module(self) -> str:
        """The dotted name under which Python imports the file."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self) -> bool:
        return PurePosixPath(self.path).name == "__init__.py"

    def at(self, node: ast.AST, complaint: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {complaint}"


def files_below(directory: Path) -> Iterator[Path]:
    """Every file below `directory` that is ours, in a fixed order."""
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            is_hidden = path.name.startswith(".") and path.name not in HIDDEN_BUT_OURS
            if path.name not in GENERATED and not is_hidden and path.suffix != ".egg-info":
                yield from files_below(path)
        elif path.is_file() and path.name != GIT_POINTER:
            yield path


@cache
def _read(path: Path) -> Source:
    """One file, read and parsed once for all checks."""
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def python_sources(*directories: str) -> list[Source]:
    """The Python files of the named directories; a directory that is not there has none."""
    return [
        _read(path)
        for directory in directories
        if (ROOT / directory).is_dir()
        for path in files_below(ROOT / directory)
        if path.suffix == ".py"
    ]


def require_none(complaints: list[str]) -> None:
    """Fails with all complaints, a line each."""
    if complaints:
        raise AssertionError("\n".join([f"{len(complaints)} complaints", *complaints]))


def require_tidy(check: Callable[[Source], list[str]], sources: list[Source]) -> None:
    """Fails with all complaints of one check about all sources."""
    require_none([complaint for source in sources for complaint in check(source)])
