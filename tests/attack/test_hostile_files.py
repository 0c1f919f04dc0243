"""Store directories that somebody made to harm who opens them: tools end soon, and say why.

Each case is run as a process with bounds of memory and time of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.attack.bounded_command import run_bounded
from tests.unit.cli.stores import data_files, ledger, make_store, overwrite
from tests.unit.cli.test_store_convert import SMALL, plain_store

TERABYTE = 1 << 40


def queue_folder(root: Path) -> Path:
    return root / "consumequeue" / "Orders" / "0"


def pipe_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link_instead(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def last_data_file(root: Path) -> Path:
    return data_files(root)[-1]


# What is done to a ledger's directory, and what the complaint names.
LEDGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "segment of a terabyte": (
        lambda root: os.truncate(last_data_file(root), TERABYTE),
        "has 1099511627776 bytes, allowed are 2147483647",
    ),
    "index of a terabyte": (
        lambda root: os.truncate(sorted((ledger(root) / "index").iterdir())[-1], TERABYTE),
        "has 1099511627776 bytes, allowed are 2147483647",
    ),
    "segment is a pipe": (
        lambda root: pipe_instead(last_data_file(root)),
        "is a named pipe, expected a regular file",
    ),
    "segment is a device": (
        lambda root: link_instead(last_data_file(root), "/dev/zero"),
        "is a character device, expected a regular file",
    ),
    "segment links to itself": (
        lambda root: link_instead(last_data_file(root), last_data_file(root).name),
        "Too many levels of symbolic links",
    ),
    "checkpoint is a pipe": (
        lambda root: pipe_instead(ledger(root) / "checkpoint"),
        "checkpoint is a named pipe",
    ),
    "checkpoint of a terabyte": (
        lambda root: os.truncate(ledger(root) / "checkpoint", TERABYTE),
        "checkpoint has 1099511627776 bytes, allowed are 1048576",
    ),
    "queue file is a pipe": (
        lambda root: pipe_instead(queue_folder(root) / f"{2000 * 50:020d}"),
        "is a named pipe, expected a regular file",
    ),
    "queue file of a terabyte": (
        lambda root: os.truncate(sorted(queue_folder(root).iterdir())[0], TERABYTE),
        "has 1099511627776 bytes, allowed are 2147483647",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("good") / "store")


@pytest.fixture(scope="module")
def good_plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_store(tmp_path_factory.mktemp("good") / "plain")


@pytest.mark.parametrize("case", LEDGERS)
def test_ledger_that_was_made_to_harm_is_refused_with_the_file(
    good: Path, tmp_path: Path, case: str
) -> None:
    harm, words = LEDGERS[case]
    root = shutil.copytree(good, tmp_path / "store")
    harm(root)
    found = run_bounded("log", "verify", root)
    assert found.code == 1 and words in found.errors, found


def test_far_queue_file_behind_a_hole_is_found_at_once(good: Path, tmp_path: Path) -> None:
    """Between the last file and one at the end of all offsets lie 4e15 files that are missing."""
    root = shutil.copytree(good, tmp_path / "store")
    first = sorted(queue_folder(root).iterdir())[0]
    far = queue_folder(root) / f"{9 * 10**18:020d}"
    shutil.copy(first, far)
    first.write_bytes(bytes(first.stat().st_size))
    found = run_bounded("log", "verify", root)
    assert found.code == 1 and "units behind it" in found.output, found


@pytest.mark.parametrize("size", [-1, 0, 47, 48, 49, 2**31 - 1, 10 * (1 << 20)])
def test_entry_with_a_size_that_cannot_be_is_told(good: Path, tmp_path: Path, size: int) -> None:
    root = shutil.copytree(good, tmp_path / "store")
    first = data_files(root)[0]
    overwrite(first, 4, size.to_bytes(4, "big", signed=True))
    os.truncate(first, 2**31 - 1)
    found = run_bounded("log", "verify", root)
    assert found.code == 1 and str(first) in found.output, found
    assert run_bounded("log", "dump", root, "--count", "1").seconds < 30


# What is done to the source of a conversion, and what the complaint names.
SOURCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "segment of a terabyte": (
        lambda root: os.truncate(sorted((root / "commitlog").iterdir())[0], TERABYTE),
        "allowed are 2147483647",
    ),
    "queue file is a pipe": (
        lambda root: pipe_instead(sorted(queue_folder(root).iterdir())[0]),
        "is a named pipe",
    ),
    "queue file is a device": (
        lambda root: link_instead(sorted(queue_folder(root).iterdir())[0], "/dev/zero"),
        "is a character device",
    ),
    "offsets are a pipe": (
        lambda root: pipe_instead(root / "config" / "consumerOffset.json"),
        "consumerOffset.json is a named pipe",
    ),
    "offsets of a terabyte": (
        lambda root: os.truncate(root / "config" / "consumerOffset.json", TERABYTE),
        "consumerOffset.json has 1099511627776 bytes",
    ),
    "offsets nested without end": (
        lambda root: (root / "config" / "consumerOffset.json").write_text("[" * 1_000_000),
        "consumerOffset.json",
    ),
}


@pytest.mark.parametrize("case", SOURCES)
def test_source_of_a_conversion_that_was_made_to_harm_is_refused(
    good_plain: Path, tmp_path: Path, case: str
) -> None:
    harm, words = SOURCES[case]
    root = shutil.copytree(good_plain, tmp_path / "plain")
    harm(root)
    found = run_bounded("store", "convert", root, tmp_path / "ledger", "--to", "ledger", *SMALL)
    assert found.code == 1 and words in found.errors, found
    assert "Traceback" not in found.errors and not (tmp_path / "ledger").exists()


def test_lock_that_is_a_pipe_is_not_waited_for(good_plain: Path, tmp_path: Path) -> None:
    root = shutil.copytree(good_plain, tmp_path / "plain")
    pipe_instead(root / "lock")
    found = run_bounded("store", "convert", root, tmp_path / "ledger", "--to", "ledger", *SMALL)
    assert "Traceback" not in found.errors, found


@pytest.mark.parametrize("seed", range(3))
def test_bytes_changed_at_random_never_break_a_tool(
    good: Path, good_plain: Path, tmp_path: Path, seed: int
) -> None:
    """One run for each seed and tool: files of log, index and queues with bytes of other values."""
    rng = Random(seed)
    for number, source in enumerate((good, good_plain)):
        root = shutil.copytree(source, tmp_path / f"store-{number}")
        paths = sorted(path for path in root.rglob("[0-9]*") if path.is_file())
        for path in rng.sample(paths, min(4, len(paths))):
            data = bytearray(path.read_bytes())
            for _ in range(rng.randrange(1, 20)):
                at = rng.randrange(len(data))
                new = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), rng.randbytes(4)))
                data[at : at + 4] = new[: len(data) - at]
            path.write_bytes(data)
        for words in (("log", "verify"), ("log", "stat"), ("log", "dump", "--count", "5")):
            found = run_bounded(*words, root)
            assert found.code in (0, 1) and "Traceback" not in found.errors, found
    found = run_bounded(
        "store", "convert", tmp_path / "store-1", tmp_path / "ledger", "--to", "ledger", *SMALL
    )
    assert found.code in (0, 1) and "Traceback" not in found.errors, found


def test_names_in_a_log_do_nothing_to_the_terminal_that_shows_them(
    good_plain: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(good_plain, tmp_path / "plain")
    for path in (root / "commitlog").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\x06Orders", b"\x06\x1b[2J\x07\n"))
    for words in (("log", "stat"), ("log", "verify"), ("log", "dump", "--count", "3")):
        found = run_bounded(*words, root)
        assert found.code in (0, 1)
        assert not {"\x1b", "\x07"} & set(found.output + found.errors), (words, found)
        assert words[1] != "stat" or "\\x1b[2J" in found.output
    words = ("store", "convert", root, tmp_path / "ledger", "--to", "ledger", *SMALL)
    found = run_bounded(*words)
    assert "\x1b" not in found.output + found.errors and "Traceback" not in found.errors
