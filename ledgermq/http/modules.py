"""Modules of a page that are sent as one script: fewer requests, and gzip sees all of it at once.

The sources are modules as browsers take them, and run as they are. What the first script imports
goes into it, each module behind those that it imports.

All share one scope then. So a name at the top level of a module is there once among all of them,
and is none of the browser's own (`top`, `open`): a module could mean that one.
"""

import posixpath
import re
from typing import Final

_IMPORT: Final = re.compile(r'^import \{ ([\w, ]+) \} from "(\.[\w./-]+)";\n', re.MULTILINE)
_DECLARED: Final = re.compile(
    r"^(?:export )?(?:(?:async )?function\*?|const|let|class) (\w+)", re.MULTILINE
)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)
# What neither of them takes: other forms of import and export, several names at once.
_OTHER: Final = re.compile(r"^(?:import|export)\b(?!\().*|^(?:const|let) [{\[].*", re.MULTILINE)


def join_modules(scripts: dict[str, str], entry: str) -> dict[str, str]:
    """Returns scripts with all that the entry imports joined into it.

    Args:
        scripts: path -> text of each.
        entry: path of the first one.

    Returns:
        The entry, and those that it does not import: they are as they were.

    Raises:
        ValueError: a form of import or export that is not known here, or a name that two have.
            Or one that stays imports another.
        KeyError: a script that is imported is not there.
    """
    order: list[str] = []
    _visit(scripts, entry, order, set())
    owners: dict[str, str] = {}
    bodies = []
    for path in order:
        body = _IMPORT.sub("", scripts[path])
        for name in _DECLARED.findall(body):
            if name in owners:
                raise ValueError(f"{name} is in {owners[name]} and in {path}")
            owners[name] = path
        body = _EXPORT.sub("", body)
        if found := _OTHER.search(body):
            raise ValueError(f"{path}: {found.group()!r} cannot be joined")
        bodies.append(body)
    rest = {path: text for path, text in scripts.items() if path not in order}
    for path, text in rest.items():
        if found := _IMPORT.search(text):
            raise ValueError(f"{path}: {found.group().strip()!r} of a script that is joined")
    return {entry: "".join(bodies), **rest}


def _visit(scripts: dict[str, str], path: str, order: list[str], seen: set[str]) -> None:
    seen.add(path)
    for _, target in _IMPORT.findall(scripts[path]):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target not in seen:
            _visit(scripts, target, order, seen)
    order.append(path)
