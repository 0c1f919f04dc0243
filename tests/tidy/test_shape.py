"""Names, lengths and banned calls: the real tree passes, and a bad sample of each kind does not."""

from collections.abc import Callable

import pytest

from tests.tidy.shape_rules import (
    FILE_LINES_MAX,
    check_docstring,
    check_lengths,
    check_mapping_flush,
    check_names,
    check_package_file,
    check_sleep,
    check_syntax,
    words_of,
)
from tests.tidy.sources import Source, python_sources, require_tidy

Check = Callable[[Source], list[str]]

OURS = ("ledgermq", "tests", "bench")


@pytest.mark.parametrize(
    ("check", "directories"),
    [
        (check_syntax, OURS),
        (check_names, OURS),
        (check_lengths, OURS),
        (check_docstring, OURS),
        (check_package_file, OURS),
        (check_mapping_flush, ("ledgermq",)),
        (check_sleep, OURS),
    ],
)
def test_the_tree_is_tidy(check: Check, directories: tuple[str, ...]) -> None:
    require_tidy(check, python_sources(*directories))


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (check_syntax, "bench/append.py", "def f[T](x: T) -> T: ..."),
        (check_syntax, "bench/append.py", "def f("),
        (check_names, "ledgermq/broker/utils.py", ""),
        (check_names, "ledgermq/common/bytes.py", ""),
        (check_names, "ledgermq/broker/handler.py", ""),
        (check_names, "ledgermq/broker/topics.py", "class TopicManager: ..."),
        (check_names, "ledgermq/broker/topics.py", "class RPCHandler: ..."),
        (check_names, "ledgermq/broker/topics.py", "class C:\n    def send_impl(self): ..."),
        (check_names, "tests/unit/broker/test_topics.py", "def make_helper(): ..."),
        (check_lengths, "bench/append.py", "x = 1\n" * (FILE_LINES_MAX + 1)),
        (check_lengths, "bench/append.py", "def f():\n" + "    x = 1\n" * 70),
        (check_lengths, "bench/append.py", "async def f():\n" + "    x = 1\n" * 70),
        (check_lengths, "bench/append.py", "#" * 101),
        (check_docstring, "bench/append.py", "x = 1"),
        (check_package_file, "ledgermq/client/__init__.py", "x = 1"),
        (check_package_file, "ledgermq/client/__init__.py", '__version__ = "1"'),
        (check_package_file, "ledgermq/client/__init__.py", "def f(): ..."),
        (check_mapping_flush, "ledgermq/dledger/store/segment.py", "self._mapping.flush()"),
        (check_mapping_flush, "ledgermq/dledger/store/filesystem.py", "import mmap\nm.flush()"),
        (check_sleep, "ledgermq/client/retry.py", "import time\ntime.sleep(1)"),
        (check_sleep, "tests/e2e/test_cluster.py", "from time import sleep"),
    ],
)
def test_a_bad_sample_is_found(check: Check, path: str, text: str) -> None:
    assert check(Source(path, text)) != []


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (check_names, "ledgermq/dledger/handler.py", "class EntryHandler: ..."),
        (check_names, "ledgermq/broker/topics.py", "class Topics:\n    def database(self): ..."),
        (check_names, "tests/unit/test_x.py", "def test_the_base_port_is_refused(): ..."),
        (check_lengths, "bench/append.py", "def f():\n" + "    x = 1\n" * 69),
        (check_package_file, "ledgermq/client/__init__.py", '"""D."""\n__all__ = ["Producer"]'),
        (check_package_file, "ledgermq/__init__.py", '__version__ = "1"'),
        (check_mapping_flush, "ledgermq/dledger/store/vote_file.py", "stream.flush()"),
        (check_mapping_flush, "ledgermq/dledger/store/filesystem.py", "import mmap\nfile.flush()"),
        (check_sleep, "ledgermq/cli/main.py", "import time\ntime.sleep(1)"),
    ],
)
def test_a_good_sample_passes(check: Check, path: str, text: str) -> None:
    assert check(Source(path, text)) == []


def test_names_are_read_in_every_case_style() -> None:
    assert words_of("DLedgerMmapFileStore") == ["d", "ledger", "mmap", "file", "store"]
    assert words_of("_JSONWrapper") == ["json", "wrapper"]
    assert words_of("test_file_base2") == ["test", "file", "base"]
