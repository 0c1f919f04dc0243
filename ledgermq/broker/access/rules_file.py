"""plain_acl.yml: read safely, written whole.

Only plain YAML is read: mappings, lists, texts, numbers, truths; no tags, no aliases, at most a
MiB. A write replaces the file in one step, readable by its owner only; comments are lost with it,
as upstream loses them. The time of the file is the time of the rules in it. The same goes for the
other files of access control, see rules_folder.py.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.broker.data_version import DataVersion
from ledgermq.broker.errors import AccessRulesError

_FILE_BYTES_MAX: Final = 1 << 20


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]  # yaml ships no types
    """Without aliases: a few lines of them unfold to any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"line {mark.line + 1}: an alias, which is not read here")
        return super().compose_node(parent, index)


class FileRules(NamedTuple):
    """What a file said, and when it was written."""

    rules: AccessRules
    version: DataVersion
    # Of the file, ms since 1970.
    changed_ms: int
    # True when others than its owner may read it.
    is_exposed: bool


def read_rules(path: Path) -> FileRules:
    """Reads the file.

    Raises:
        AccessRulesError: it cannot be read or used; the text names the file.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise AccessRulesError(f"{path}: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise AccessRulesError(f"{path}: more than {_FILE_BYTES_MAX} bytes")
    try:
        document = yaml.load(data.decode("utf-8"), _PlainLoader)
        rules = parse_rules(document)
    except yaml.YAMLError as error:
        raise AccessRulesError(f"{path}: {_what_is_wrong(error)}") from None
    except (ValueError, RecursionError, AccessRulesError) as error:
        raise AccessRulesError(f"{path}: {error}") from error
    return FileRules(
        rules,
        _version(document),
        status.st_mtime_ns // 1_000_000,
        bool(status.st_mode & 0o077),
    )


def _what_is_wrong(error: yaml.YAMLError) -> str:
    """Without the line itself, which the parser would show: it may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(error).partition("\n")[0]


def _version(document: Mapping[str, Any]) -> DataVersion:
    """Upstream keeps a list of one version."""
    versions = document.get("dataVersion")
    if isinstance(versions, list) and versions:
        return DataVersion.from_json(versions[0])
    return DataVersion.from_json(versions)


def write_rules(path: Path, rules: AccessRules, version: DataVersion, changed_ms: int) -> None:
    """Replaces the file; its time becomes `changed_ms`.

    Commit point: the rename. Raises OSError: the old file is untouched.
    """
    document = {**rules.to_document(), "dataVersion": [version.to_json()]}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        time_ns = changed_ms * 1_000_000
        os.utime(file.fileno(), ns=(time_ns, time_ns))
        os.fsync(file.fileno())
    temporary.replace(path)
