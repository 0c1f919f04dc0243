"""All files of access control: plain_acl.yml, and what lies in the folder `acl` beside it.

    conf/plain_acl.yml   name ""            may be missing when the folder has files
    conf/acl/a.yml       name "acl/a.yml"   also *.yaml, also below it; hidden ones are left out

Their white addresses add up. An access key counts where it is met first: in the folder by names,
then in plain_acl.yml, as upstream reads them. One file that cannot be used makes all of them
unusable. Source: `PlainPermissionManager.load`.
"""

import os
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from ledgermq.broker.access.rules import AccessRules, merged_rules
from ledgermq.broker.access.rules_file import FileRules, read_rules, write_rules
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError

# Name of plain_acl.yml itself among the files.
MAIN_FILE: Final = ""
_FOLDER: Final = "acl"
_ENDINGS: Final = (".yml", ".yaml")
# What a file is called that the leader does not have.
_PUT_ASIDE: Final = ".replaced"
_FILES_MAX: Final = 100
_NAME_CHARS_MAX: Final = 255


class FolderRules(NamedTuple):
    """What all files said."""

    # By name.
    files: dict[str, FileRules]
    # When a file was last written, made or removed, ms since 1970.
    changed_ms: int


def read_folder(path: Path) -> FolderRules:
    """Reads plain_acl.yml at `path` and what belongs to it.

    Raises:
        AccessRulesError: a file cannot be read or used, or there is none; the text names it.
    """
    others = _names(path)
    if len(others) > _FILES_MAX:
        raise AccessRulesError(f"{path.parent / _FOLDER}: more than {_FILES_MAX} files")
    files = {name: read_rules(path.parent / name) for name in others}
    if others and not path.exists():
        files[MAIN_FILE] = FileRules(AccessRules(), DataVersion(), 0, False)
    else:
        files[MAIN_FILE] = read_rules(path)
    times = [found.changed_ms for found in files.values()]
    if others:
        times += [_changed_ms(folder) for folder, _ in _walk(path)]
    return FolderRules(files, max(times))


def merge(files: Mapping[str, AccessRules]) -> tuple[AccessRules, dict[str, str]]:
    """Returns the rules of all files together, and which file each account is of.

    Raises:
        AccessRulesError: together they are too many.
    """
    owners: dict[str, str] = {}
    for name in _in_order(files):
        for access_key in files[name].accounts:
            owners.setdefault(access_key, name)
    return merged_rules([files[name] for name in _in_order(files)]), owners


def _in_order(files: Mapping[str, AccessRules]) -> list[str]:
    return [*sorted(name for name in files if name != MAIN_FILE), MAIN_FILE]


def look(path: Path) -> object:
    """Returns what tells changed files from those that are known."""
    try:
        names = _names(path)
    except AccessRulesError as error:
        return str(error)
    return [(name, _state(file_path(path, name))) for name in (*names, MAIN_FILE)]


def _state(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


def newest_file_ms(path: Path) -> int:
    """Returns when a file was last written, ms since 1970; 0 when there is none."""
    paths = [file_path(path, name) for name in (*_names(path), MAIN_FILE)]
    return max(map(_changed_ms, paths))


def folder_writes(
    path: Path, files: Mapping[str, tuple[AccessRules, DataVersion]], changed_ms: int
) -> list[Callable[[], None]]:
    """Returns what replaces all files, plain_acl.yml last; what else lies in the folder is renamed,
    not lost.

    The time of each file becomes `changed_ms`. Each step may wait for the disk, and raises OSError,
    or AccessRulesError for a file that would be too large: some files are replaced then, and doing
    all again does the rest.
    """
    writes: list[Callable[[], None]] = [partial(_put_others_aside, path, frozenset(files))]
    for name in sorted(files, reverse=True):
        rules, version = files[name]
        writes.append(partial(_write_file, path, name, rules, version, changed_ms))
    return [*writes, partial(set_time, path, changed_ms)]


def _put_others_aside(path: Path, names: Container[str]) -> None:
    for name in _names(path):
        if name not in names:
            old = file_path(path, name)
            old.replace(old.with_name(old.name + _PUT_ASIDE))


def _write_file(
    path: Path, name: str, rules: AccessRules, version: DataVersion, changed_ms: int
) -> None:
    file = file_path(path, name)
    if name != MAIN_FILE:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_rules(file, rules, version, changed_ms)


def set_time(path: Path, changed_ms: int) -> None:
    """Makes the folders as old as the rules in them: writing a file made them new."""
    for folder, _ in _walk(path):
        os.utime(folder, ns=(changed_ms * 1_000_000, changed_ms * 1_000_000))


def file_path(path: Path, name: str) -> Path:
    """Where the file of a name lies."""
    return path if name == MAIN_FILE else path.parent / name


def check_file_name(name: object) -> str:
    """Returns the name of a file of the folder, as another member gives it.

    Raises:
        AccessRulesError: it is no name in the folder.
    """
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    is_hidden = any(part.startswith(".") for part in parts)
    if (
        not isinstance(name, str)
        or len(name) > _NAME_CHARS_MAX
        or len(parts) < 2
        or parts[0] != _FOLDER
        or is_hidden
        or not name.endswith(_ENDINGS)
        or "\\" in name
        or not name.isprintable()
    ):
        raise AccessRulesError(f"{str(name)[:64]!r} is no file of the folder {_FOLDER}")
    return "/".join(parts)


def _names(path: Path) -> list[str]:
    """The files of the folder, sorted."""
    return sorted(
        (folder / name).relative_to(path.parent).as_posix()
        for folder, names in _walk(path)
        for name in names
    )


def _walk(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folder and those below it, each with the names of its files; nothing without a folder.

    Raises:
        AccessRulesError: a folder cannot be read.
    """
    waiting = [path.parent / _FOLDER]
    while waiting:
        folder = waiting.pop()
        try:
            found = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise AccessRulesError(f"{folder}: {error.strerror}") from error
        waiting += [folder / entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        yield (
            folder,
            [one.name for one in found if one.name.endswith(_ENDINGS) and not one.is_dir()],
        )


def _changed_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0
