"""Documents of access control to YAML and back; loaded when its first file is read or written.

Only strict YAML is read: mappings, lists, texts, numbers, truths; no tags, no aliases, and no name
that a mapping has twice.
"""

from collections.abc import Mapping
from typing import Any

import yaml


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # yaml ships no types
    """Without aliases: a few lines of them unfold to any size. Of two members of one name the last
    would count, whichever of them was meant.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"line {mark.line + 1}: an alias, which is not read here")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        names = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f"line {line}: {key.value[:64]!r} is there twice")
                names.add(key.value)
        return node


class _StrictDumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml ships no types
    """Writes what is in two places twice: the loader takes no alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def parse_document(text: str) -> Any:
    """Returns what a text holds.

    Raises:
        ValueError, RecursionError: it is no such YAML.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ValueError(_what_is_wrong(error)) from None


def format_document(document: Mapping[str, Any]) -> str:
    """Returns the text of a document, its members in their order."""
    text: str = yaml.dump(document, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True)
    return text


def _what_is_wrong(error: yaml.YAMLError) -> str:
    """Without the line itself, which the parser would show: it may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(error).partition("\n")[0]
