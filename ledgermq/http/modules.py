"""Modules of a page that are sent as one script: fewer requests, and gzip sees all of it at once.

The sources are modules as browsers take them, and run as they are. What the first script imports
without condition goes into it, each module behind those that it imports; what is fetched later
(`import("../pages/x.js")`) stays a file and imports from that one script.

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
        scripts: path -> text of each; what others than the entry import is in it, too.
        entry: path of the first one.

    Returns:
        The entry, and those that are fetched later. A script that imports nothing of the joined
        ones is as it was.

    Raises:
        ValueError: a form of import or export that is not known here, or a name that two have.
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
    wanted: set[str] = set()
    for path in rest:
        rest[path] = _redirect(path, rest[path], set(order), entry, wanted)
    if missing := sorted(wanted - set(owners)):
        raise ValueError(f"imported, and declared nowhere: {', '.join(missing)}")
    exports = f"export {{ {', '.join(sorted(wanted))} }};\n" if wanted else ""
    return {entry: "".join(bodies) + exports, **rest}


def _imports(path: str, text: str) -> list[tuple[list[str], str]]:
    """Returns names and path of each import."""
    folder = posixpath.dirname(path)
    return [
        (names.split(", "), posixpath.normpath(posixpath.join(folder, target)))
        for names, target in _IMPORT.findall(text)
    ]


def _visit(scripts: dict[str, str], path: str, order: list[str], seen: set[str]) -> None:
    seen.add(path)
    for _, target in _imports(path, scripts[path]):
        if target not in seen:
            _visit(scripts, target, order, seen)
    order.append(path)


def _redirect(path: str, text: str, joined: set[str], entry: str, wanted: set[str]) -> str:
    """Has a script take from the entry what it took from those that are in it now."""
    names: set[str] = set()
    for found, target in _imports(path, text):
        if target in joined:
            names.update(found)
    if not names:
        return text
    wanted |= names
    folder = posixpath.dirname(path)

    def keep(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match.group(2)))
        return "" if target in joined else match.group()

    source = posixpath.relpath(entry, folder)
    source = source if source.startswith(".") else f"./{source}"
    head = f'import {{ {", ".join(sorted(names))} }} from "{source}";\n'
    return head + _IMPORT.sub(keep, text)
