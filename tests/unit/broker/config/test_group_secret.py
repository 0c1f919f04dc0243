"""The secret of a broker's group: where its file is named, and what is said of a file that is no
secret.
"""

from pathlib import Path

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.config.group_secret import find_group_secret
from ledgermq.broker.service.member import replica_config
from ledgermq.state.errors import ConfigError

GROUP = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-127.0.0.1:1", "dLegerSelfId": "n0"}


def secret_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "group.secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_without_a_file_there_is_no_secret() -> None:
    config = load_broker_config(None, GROUP)
    assert find_group_secret(config) is None
    assert replica_config(config).group_secret is None


def test_the_ledger_gets_the_secret_of_the_file(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "s" * 40 + "\n")
    config = load_broker_config(None, {**GROUP, "dLegerGroupSecretFile": path})
    secret, again = find_group_secret(config), replica_config(config).group_secret
    assert secret is not None and again is not None
    assert secret.key("members") == again.key("members")


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [("short", 0o600, "5 bytes"), ("s" * 40, 0o640, "chmod 0600")],
)
def test_a_file_that_is_no_secret_is_refused_with_its_key(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = secret_file(tmp_path, text, mode)
    config = load_broker_config(None, {"dLegerGroupSecretFile": path})
    with pytest.raises(ConfigError, match=f"dLegerGroupSecretFile.*{said}"):
        find_group_secret(config)


def test_a_file_that_is_not_there_is_refused_with_its_key(tmp_path: Path) -> None:
    config = load_broker_config(None, {"dLegerGroupSecretFile": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="dLegerGroupSecretFile.*No such file"):
        find_group_secret(config)


def test_members_are_told_who_is_let_in_without_a_proof() -> None:
    keys = {
        "dLegerGroupSecretMode": "accept",
        "dLegerJavaMembers": "n0; n0-10.0.0.0/8",
        "dLegerToolAddresses": "127.0.0.1",
        "dLegerToolRequests": "GET;METADATA",
    }
    config = replica_config(load_broker_config(None, {**GROUP, **keys}))
    assert not config.requires_secret
    assert config.java_members == ("n0", "n0-10.0.0.0/8")
    assert (config.tool_networks, config.tool_requests) == (("127.0.0.1",), ("GET", "METADATA"))
    config = replica_config(load_broker_config(None, GROUP))
    assert config.requires_secret and config.java_members is config.tool_networks is None
    nobody = {"dLegerJavaMembers": "none", "dLegerToolAddresses": "none"}
    config = replica_config(load_broker_config(None, {**GROUP, **nobody}))
    assert config.java_members == config.tool_networks == ()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("dLegerGroupSecretMode", "maybe", "require or accept"),
        ("dLegerJavaMembers", "n7", "as n0 or n0-10.0.0.0/8"),
        ("dLegerJavaMembers", "n0-10.0.0.300", "as n0 or n0-10.0.0.0/8"),
        ("dLegerToolAddresses", "localhost", "addresses and networks"),
        ("dLegerToolRequests", "GET;PUSH", "METADATA"),
        ("haSlaveAddresses", "10.0.0.0/99", "addresses and networks"),
    ],
)
def test_lists_of_members_and_tools_are_checked(key: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed) as caught:
        load_broker_config(None, {**GROUP, key: value})
    assert caught.value.key == key
