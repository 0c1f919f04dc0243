"""The sample files of conf/ are what the documentation says: keys, defaults, places."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.protocol.properties_file import parse_properties

ROOT = Path(__file__).parents[4]
CONF = ROOT / "conf"
SAMPLES = sorted(path.relative_to(ROOT).as_posix() for path in CONF.rglob("*.conf"))
DOCS = (ROOT / "docs" / "operations.md").read_text()
# What a sample says because it names a place, an address or a role; everything else is the default.
OWN = frozenset(
    "brokerClusterName brokerName listenPort namesrvAddr storePathRootDir kvConfigPath"
    " enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId".split()
)


def documented() -> dict[str, str]:
    """Each key of the tables with its default."""
    rows = re.findall(r"^\| `([\w.]+)` \| `?([^`|]*)", DOCS, flags=re.MULTILINE)
    return {key: default.strip() for key, default in rows}


def settings(name: str) -> dict[str, str]:
    return parse_properties((ROOT / name).read_text())


def test_there_are_samples_of_each_kind() -> None:
    assert SAMPLES == [
        "conf/broker.conf",
        "conf/dledger/broker-n0.conf",
        "conf/dledger/broker-n1.conf",
        "conf/dledger/broker-n2.conf",
        "conf/namesrv.conf",
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_key_is_documented_and_has_its_default(name: str) -> None:
    defaults = documented()
    for key, value in settings(name).items():
        assert key in defaults, f"{key} is in no table of docs/operations.md"
        if key not in OWN:
            assert value == defaults[key], f"{key} is {value}; the documentation says otherwise"


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_is_kept_in_a_folder_that_is_shared_or_emptied(name: str) -> None:
    if "namesrv" in name:
        kept = [load_namesrv_config(ROOT / name, {}).kv_config_path]
    else:
        config = load_broker_config(ROOT / name, {}, {})
        assert not config.unknown_keys
        kept = [config.store_root, config.commit_log_path]
    for path in kept:
        for shared in ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir()):
            assert not path.is_relative_to(shared), f"{path} is below {shared}"


def test_members_differ_in_what_is_their_own_and_in_nothing_else() -> None:
    members = [settings(name) for name in SAMPLES if "dledger" in name]
    for key in {key for member in members for key in member}:
        values = {member.get(key) for member in members}
        is_own = key in ("listenPort", "storePathRootDir", "dLegerSelfId")
        assert len(values) == (3 if is_own else 1), key


@pytest.mark.parametrize("name", SAMPLES)
def test_the_command_of_its_head_names_it(name: str) -> None:
    commands = re.findall(r"^#\s+ledgermq .*", (ROOT / name).read_text(), flags=re.MULTILINE)
    assert commands and all(name in command for command in commands)


def test_the_files_that_the_documentation_names_are_there() -> None:
    named = {
        found
        for page in (ROOT / "docs").rglob("*.md")
        for found in re.findall(r"\bconf/[\w./-]+\.conf", page.read_text())
    }
    assert named and all((ROOT / one).is_file() for one in named)
