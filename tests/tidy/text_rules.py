"""What the product's text may not say, and which configuration keys it must explain."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from tests.tidy.sources import ROOT, files_below

# The product stands alone: it names neither where it was written nor papers that do not ship.
# A pattern, and why a reader would stumble over it.
FOREIGN: tuple[tuple[str, str], ...] = (
    (r"\bissues?\b(?!/\d)", "tracker items are not part of the product; say what is so"),
    (r"\.\./[s]hared\b|\bshared/(spec|design|style)\b", "a path outside of the repository"),
    (r"(?<![\w.}~])/(?:home|root|work|Users)/\w|/tmp/venv\b", "a path of one machine"),
    (r"\bspec/(remoting|store|dledger|reliability|performance|spark|behaviours|features)\b",)
    + ("a document that does not ship",),
    (r"\b(design|style)\.md\b|\b[D]EVELOPERS\.md\b", "a document that does not ship"),
    (r"\b(?:in|of|by|see) (?:the )?(?:design|style) \d", "a document that does not ship"),
    (r"https?://[^\s/]*(?:artifactory|nexus|mirror)", "a registry of one machine"),
)
_FOREIGN = tuple((re.compile(pattern, re.IGNORECASE), why) for pattern, why in FOREIGN)

# The rules themselves, and their bad samples.
EXEMPT = frozenset({"tests/tidy/text_rules.py", "tests/tidy/test_text.py"})
TEXT_SUFFIXES = frozenset(
    ("", ".py", ".md", ".conf", ".toml", ".txt", ".cfg", ".ini", ".xml", ".java", ".go", ".js")
    + (".json", ".sh", ".cc", ".cpp", ".typed", ".properties", ".yml", ".yaml")
)
# A recorded frame or a lock file of a foreign package is not our text.
TEXT_BYTES_MAX = 400_000


def product_texts(root: Path = ROOT) -> list[tuple[str, str]]:
    """Path below the root and text of every file that a user gets to read."""
    texts = []
    for path in files_below(root):
        name = path.relative_to(root).as_posix()
        is_lock = path.name in ("package-lock.json", "go.sum", "LICENSE")
        if name in EXEMPT or is_lock or path.suffix not in TEXT_SUFFIXES:
            continue
        raw = path.read_bytes()
        if len(raw) <= TEXT_BYTES_MAX and b"\0" not in raw:
            texts.append((name, raw.decode("utf-8", errors="replace")))
    return texts


def foreign_words(name: str, text: str) -> list[str]:
    """The complaints about one text, with line numbers."""
    found_at_all = [pattern for pattern in _FOREIGN if pattern[0].search(text)]
    return [
        f"{name}:{number}: {found.group()!r}: {why}"
        for number, line in enumerate(text.splitlines(), start=1)
        for pattern, why in found_at_all
        if (found := pattern.search(line))
    ]


def undocumented(keys: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The keys that none of the texts mentions as a whole word."""
    words = {word for text in texts for word in re.findall(r"[A-Za-z0-9_]+", text)}
    # Keys of parts joined by dots.
    words |= {word for text in texts for word in re.findall(r"\w+(?:\.\w+)+", text)}
    return sorted(set(keys) - words)


def keys_set(text: str) -> list[str]:
    """The keys that a properties file sets, in its order."""
    keys = []
    for line in text.splitlines():
        key, equals, _ = line.strip().partition("=")
        if equals and not key.startswith(("#", "!")):
            keys.append(key.strip())
    return keys


def uncommented_keys(text: str) -> list[str]:
    """The keys of a sample file that no comment stands above."""
    bare = []
    previous = ""
    for line in text.splitlines():
        if keys_set(line) and not previous.startswith("#"):
            bare += keys_set(line)
        previous = line.strip()
    return bare


def names_in_examples(text: str) -> list[tuple[str, str]]:
    """Module and name of each import of ours in the Python examples of a page.

    Raises:
        SyntaxError: an example is not Python.
    """
    return [
        (node.module, alias.name)
        for example in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for node in ast.walk(ast.parse(example))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ledgermq")
        for alias in node.names
        if node.module
    ]
