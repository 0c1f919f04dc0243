"""The account by which a broker registers: two keys that belong together, and a private file."""

from pathlib import Path

import pytest

from ledgermq.broker.config.broker_config import effective_properties, load_broker_config
from ledgermq.broker.config.namesrv_account import find_namesrv_account
from ledgermq.protocol.signature import Credentials
from ledgermq.state.errors import ConfigError


def settings(folder: Path, content: bytes = b"secret\n", mode: int = 0o600) -> dict[str, str]:
    path = folder / "namesrv.secret"
    path.write_bytes(content)
    path.chmod(mode)
    return {"namesrvAccessKey": "shop-brokers", "namesrvSecretKeyFile": str(path)}


def test_without_the_keys_there_is_no_account() -> None:
    assert find_namesrv_account(load_broker_config(None, {})) is None


def test_the_account_is_made_of_both_keys_and_its_secret_is_not_shown(tmp_path: Path) -> None:
    config = load_broker_config(None, settings(tmp_path))
    account = find_namesrv_account(config)
    assert account == Credentials(access_key="shop-brokers", secret_key="secret")
    assert "secret\n" not in "".join(effective_properties(config).values())


@pytest.mark.parametrize(
    ("changes", "content", "mode", "words"),
    [
        ({"namesrvAccessKey": ""}, b"secret", 0o600, "namesrvAccessKey"),
        ({"namesrvSecretKeyFile": ""}, b"secret", 0o600, "namesrvSecretKeyFile"),
        ({"namesrvSecretKeyFile": "/nowhere/secret"}, b"", 0o600, "No such file"),
        ({}, b"secret", 0o640, "chmod 0600"),
        ({}, b" \n", 0o600, "not empty"),
        ({}, b"\xff\xfe", 0o600, "UTF-8"),
        ({}, b"x" * 1025, 0o600, "more than 1024 bytes"),
    ],
)
def test_keys_that_make_no_account_end_the_start(
    tmp_path: Path, changes: dict[str, str], content: bytes, mode: int, words: str
) -> None:
    config = load_broker_config(None, {**settings(tmp_path, content, mode), **changes})
    with pytest.raises(ConfigError, match=words):
        find_namesrv_account(config)
