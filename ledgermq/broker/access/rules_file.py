"""plain_acl.yml: read safely, written whole.

Only strict YAML is read (strict_yaml.py), at most a MiB of it. A write replaces the file in one
step, readable by its owner only; comments are lost with it, as upstream loses them. The time of the
file is the time of the rules in it. The same goes for the other files of access control, see
rules_folder.py.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.protocol.replaced_file import replace_file
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError

_FILE_BYTES_MAX: Final = 1 << 20


class FileRules(NamedTuple):
    """What a file said, and when it was written."""

    rules: AccessRules
    version: DataVersion
    # Of the file, ms since 1970.
    changed_ms: int
    # True when others than its owner may read it.
    is_exposed: bool


def _yaml() -> Any:
    """A broker without access control never loads the parser."""
    return importlib.import_module("ledgermq.access.strict_yaml")


def read_rules(path: Path) -> FileRules:
    """Reads the file.

    Raises:
        AccessRulesError: it cannot be read or used; the text names the file.
    """
    try:
        data, status = read_regular_file(path, _FILE_BYTES_MAX)
    except OSError as error:
        raise AccessRulesError(f"{path}: {error.strerror}") from error
    try:
        document = _yaml().parse_document(data.decode("utf-8"))
        rules = parse_rules(document)
    except (ValueError, RecursionError, AccessRulesError) as error:
        raise AccessRulesError(f"{path}: {error}") from error
    return FileRules(
        rules,
        _version(document),
        status.st_mtime_ns // 1_000_000,
        bool(status.st_mode & 0o077),
    )


def _version(document: Mapping[str, Any]) -> DataVersion:
    """Upstream keeps a list of one version."""
    versions = document.get("dataVersion")
    if isinstance(versions, list) and versions:
        return DataVersion.from_json(versions[0])
    return DataVersion.from_json(versions)


def content_of(path: Path, rules: AccessRules, version: DataVersion) -> bytes:
    """Returns what the file has to hold.

    Raises:
        AccessRulesError: `read_rules` would not read it.
    """
    document = {**rules.to_document(), "dataVersion": [version.to_json()]}
    content: bytes = _yaml().format_document(document).encode("utf-8")
    if len(content) > _FILE_BYTES_MAX:
        raise AccessRulesError(
            f"{path} would have {len(content)} bytes, allowed are {_FILE_BYTES_MAX}"
        )
    return content


def write_rules(path: Path, rules: AccessRules, version: DataVersion, changed_ms: int) -> None:
    """Replaces the file; its time becomes `changed_ms`.

    Raises:
        AccessRulesError: `read_rules` would not read it; the old file is untouched.
        OSError: see `replace_file`.
    """
    content = content_of(path, rules, version)
    replace_file(path, [content], changed_ns=changed_ms * 1_000_000)
