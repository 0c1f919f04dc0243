"""The product's text stands alone, explains every configuration key, and its parts are all used."""

import importlib
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.tidy.sources import ROOT, files_below, require_none
from tests.tidy.text_rules import (
    foreign_words,
    keys_set,
    names_in_examples,
    product_texts,
    uncommented_keys,
    undocumented,
)

SECTIONS = {
    "broker": "## Configuration keys of a broker",
    "namesrv": "## Configuration keys of a name server",
}
TEST_DIRECTORIES = {
    "attack",
    "console",
    "unit",
    "property",
    "simulation",
    "interop",
    "fault",
    "e2e",
    "spark",
    "tidy",
}


def table_of(program: str, name: str) -> Any:
    """The table `name` of a program's configuration; None as long as there is none."""
    for module in ("config", "config.keys", "config.ignored_keys"):
        if (ROOT / f"ledgermq/{program}" / f"{module.replace('.', '/')}.py").is_file():
            table = getattr(importlib.import_module(f"ledgermq.{program}.{module}"), name, None)
            if table:
                return table
    return None


def configuration_keys(program: str) -> dict[str, str | None]:
    """The keys that change something in a program, each with its default text or None."""
    table = table_of(program, "KEYS") or {}
    if isinstance(table, Mapping):
        return {name: getattr(key, "default", None) for name, key in table.items()}
    return {key.name: key.default for key in table}


def ignored_keys(program: str) -> set[str]:
    """The keys of upstream that a program accepts without effect."""
    return set(table_of(program, "IGNORED_KEYS") or table_of(program, "WITHOUT_EFFECT") or ())


def sample_files() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in files_below(ROOT / "conf")
        # Beside the configuration of programs there are files for those who watch them.
        if path.suffix not in (".json", ".yml")
    }


def test_the_product_names_nothing_outside_of_itself() -> None:
    require_none(
        [complaint for name, text in product_texts() for complaint in foreign_words(name, text)]
    )


@pytest.mark.parametrize("program", ["broker", "namesrv"])
def test_every_configuration_key_is_explained(program: str) -> None:
    guide = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert undocumented(configuration_keys(program), [guide, *sample_files().values()]) == []


@pytest.mark.parametrize("program", ["broker", "namesrv"])
def test_the_guide_tells_the_real_defaults(program: str) -> None:
    guide = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = guide.partition(SECTIONS[program])[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `?(.*?)[`|]", section, re.MULTILINE))
    real = configuration_keys(program)
    wrong = {
        key: (told[key], default)
        for key, default in real.items()
        if default and told.get(key, default) != default
    }
    assert wrong == {}, "told and real default"
    assert not real or set(told) - set(real) == set(), "keys without effect"


@pytest.mark.parametrize("program", ["broker", "namesrv"])
def test_sample_files_set_only_keys_that_are_accepted(program: str) -> None:
    known = set(configuration_keys(program)) | ignored_keys(program)
    unknown = {
        (name, key)
        for name, text in sample_files().items()
        if ("namesrv" in name) == (program == "namesrv")
        for key in keys_set(text)
        if known and key not in known
    }
    assert unknown == set()


def test_each_key_of_a_sample_file_has_a_comment() -> None:
    assert {
        name: bare for name, text in sample_files().items() if (bare := uncommented_keys(text))
    } == {}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = {path.name for path in files_below(ROOT / "docs") if path.suffix == ".md"}
    assert {page for page in pages - {"index.md"} if f"({page})" not in index} == set()


def test_examples_import_names_that_exist() -> None:
    """A room that is not there yet has no names to compare with."""
    pages = [ROOT / "README.md", *files_below(ROOT / "docs")]
    missing = [
        f"{page.name}: {module}.{name}"
        for page in pages
        if page.suffix == ".md"
        for module, name in names_in_examples(page.read_text(encoding="utf-8"))
        if (ROOT / module.replace(".", "/") / "__init__.py").is_file()
        and not hasattr(importlib.import_module(module), name)
        and importlib.util.find_spec(f"{module}.{name}") is None
    ]
    assert missing == []


def test_names_of_an_example_are_read() -> None:
    page = "text\n```python\nimport os\nfrom ledgermq.client import A, B\n```\n"
    assert names_in_examples(page) == [("ledgermq.client", "A"), ("ledgermq.client", "B")]


def test_tests_lie_in_the_known_directories() -> None:
    """A directory that nobody runs would hold tests that nobody sees fail."""
    found = {
        path.relative_to(ROOT / "tests").parts[0]
        for path in files_below(ROOT / "tests")
        if path.name.startswith("test_")
    }
    assert found <= TEST_DIRECTORIES


def test_make_test_is_what_the_delivery_check_runs() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert re.search(r"^bounded make test\b", script, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [
        "# See issue 7.",
        "see shared/spec",
        'PATH = "/home/somebody/x"',
        "As spec/store 4.1 says.",
        "the rule is in style 2.2",
        "kept in design.md",
        "http://nexus.corp.example/simple",
    ],
)
def test_a_foreign_word_is_found(line: str) -> None:
    assert foreign_words("ledgermq/x.py", line) != []


@pytest.mark.parametrize(
    "line",
    ["apache/rocketmq#3210", "the tissue", "a shared buffer", "the design of it", "frameworks/"],
)
def test_an_innocent_line_passes(line: str) -> None:
    assert foreign_words("ledgermq/x.py", line) == []


def test_a_key_without_explanation_is_found() -> None:
    assert undocumented(["brokerName", "brokerId"], ["`brokerName`: ...", "brokerIdx"]) == [
        "brokerId"
    ]


def test_keys_of_a_properties_file_are_read() -> None:
    text = "# brokerRole=SLAVE\nbrokerName = a\n\n# why\nbrokerId=0\n! x=y\n"
    assert keys_set(text) == ["brokerName", "brokerId"]
    assert uncommented_keys(text) == []
    assert uncommented_keys("\nbrokerId=0\nx=1\n") == ["brokerId", "x"]
