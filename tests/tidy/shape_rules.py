"""Names, lengths and other things that a file may not contain, one function for each rule."""

import ast
import re
from pathlib import PurePosixPath

from tests.tidy.sources import Source

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 100

# Words that say nothing about the thing they name.
EMPTY_WORDS = frozenset(
    ("manager", "util", "utils", "helper", "helpers", "common", "misc", "base", "impl")
    + ("abstract", "handler", "handlers", "wrapper")
)
# DLedger's own word for what answers on a follower.
NAMES_ALLOWED = frozenset({"EntryHandler"})
FILES_ALLOWED = frozenset({"ledgermq/dledger/handler.py"})

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def words_of(name: str) -> list[str]:
    """The words of a name in any case style, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def check_names(source: Source) -> list[str]:
    """No file, class or function is named by a word that says nothing.

    A test's name is a sentence about behavior and may use any word.
    """
    complaints = []
    if source.path not in FILES_ALLOWED:
        parts = PurePosixPath(source.path).with_suffix("").parts
        empty = EMPTY_WORDS.intersection(word for part in parts for word in words_of(part))
        complaints += [f"{source.path}:1: a file named {word}" for word in sorted(empty)]
    for node in source.nodes:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            if node.name in NAMES_ALLOWED or node.name.startswith("test_"):
                continue
            if empty := EMPTY_WORDS.intersection(words_of(node.name)):
                complaints.append(source.at(node, f"{node.name} says {', '.join(sorted(empty))}"))
    return complaints


def check_lengths(source: Source) -> list[str]:
    """Files, functions and lines stay below their ceilings."""
    lines = source.text.splitlines()
    complaints = [
        f"{source.path}:{number}: {len(line)} columns"
        for number, line in enumerate(lines, start=1)
        if len(line) > LINE_COLUMNS_MAX
    ]
    if len(lines) > FILE_LINES_MAX:
        complaints.append(f"{source.path}:1: {len(lines)} lines, the ceiling is {FILE_LINES_MAX}")
    for node in source.nodes:
        if isinstance(node, _FUNCTIONS):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                complaints.append(source.at(node, f"{node.name} has {count} lines"))
    return complaints


def check_syntax(source: Source) -> list[str]:
    """A file is Python as the oldest version that we run on reads it."""
    error = source.syntax_error
    return [] if error is None else [f"{source.path}:{error.lineno}: {error.msg}"]


def check_docstring(source: Source) -> list[str]:
    """Each module says what it is for."""
    return [] if ast.get_docstring(source.tree) else [f"{source.path}:1: no module docstring"]


def check_package_file(source: Source) -> list[str]:
    """An `__init__.py` holds its docstring, re-exported names and nothing that runs."""
    if not source.is_package:
        return []
    allowed = {"__all__", "__version__"} if source.path == "ledgermq/__init__.py" else {"__all__"}
    complaints = []
    for node in source.tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_list = (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and {ast.unparse(target) for target in _targets(node)} <= allowed
        )
        # The one call that must come before any room is imported.
        is_choice = source.path == "ledgermq/__init__.py" and ast.unparse(node) == "choose()"
        # What it names without loading it.
        is_door = source.path == "ledgermq/__init__.py" and (
            (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            or (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")
        )
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if not (is_text or is_list or is_import or is_choice or is_door):
            complaints.append(source.at(node, "code in __init__.py"))
    return complaints


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def check_mapping_flush(source: Source) -> list[str]:
    """Durable means `os.fdatasync`; `mmap.flush` loses its errors and syncs what nobody asked for.

    Found by the receiver: what is called a mapping, and in a file that imports mmap whatever is
    not called a file or a stream, whose buffer may be flushed.
    """
    imports_mmap = any(
        isinstance(node, ast.Import) and any(alias.name == "mmap" for alias in node.names)
        for node in source.nodes
    )
    complaints = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "flush":
            receiver = ast.unparse(node.value)
            is_stream = receiver.endswith(("file", "stream"))
            if re.search(r"map|buffer|view", receiver.lower()) or imports_mmap and not is_stream:
                complaints.append(source.at(node, f"{receiver}.flush: durable is os.fdatasync"))
    return complaints


def check_sleep(source: Source) -> list[str]:
    """Nobody sleeps: the product has deadlines, a test waits for a condition."""
    if source.path.startswith("ledgermq/cli/"):
        return []
    complaints = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "sleep":
            if ast.unparse(node.value) != "time":
                continue
            complaints.append(source.at(node, "time.sleep"))
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            if any(alias.name == "sleep" for alias in node.names):
                complaints.append(source.at(node, "time.sleep"))
    return complaints
