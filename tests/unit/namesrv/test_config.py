"""Settings of the name server: defaults, upstream's file, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.namesrv.config import load_namesrv_config, with_settings
from ledgermq.namesrv.errors import ConfigError, SettingsRefusedError


def test_defaults_are_upstreams() -> None:
    config = load_namesrv_config(None, {})
    assert config.listen_port == 9876
    assert config.broker_expired_ms == 120_000
    assert config.unknown_keys == ()


def test_file_is_read_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(
        "listenPort = 1234\n# comment\norderMessageEnable=TRUE\nserverWorkerThreads=8\n"
    )
    config = load_namesrv_config(path, {"listenPort": "0", "color": "red"})
    assert config.listen_port == 0
    assert config.order_message_enable
    assert config.unknown_keys == ("color",)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("listenPort", "70000", "0 to 65535"),
        ("listenPort", "x", "a whole number"),
        ("orderMessageEnable", "yes", "true or false"),
        ("topicsMax", "0", "1 to"),
    ],
)
def test_wrong_value_is_refused_with_key_value_and_range(
    key: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=f"{key} is '{value}'; allowed: {allowed}"):
        load_namesrv_config(None, {key: value})


def test_reading_cannot_need_accounts_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="routeNeedsAccount is 'true'; allowed: with aclEnable"):
        load_namesrv_config(None, {"routeNeedsAccount": "true"})
    assert load_namesrv_config(
        None, {"routeNeedsAccount": "true", "aclEnable": "true"}
    ).route_needs_account


def test_a_tool_changes_few_settings_and_nothing_else() -> None:
    config = load_namesrv_config(None, {"listenPort": "1234", "color": "red"})
    changed = with_settings(config, {"orderMessageEnable": "true"})
    assert changed.order_message_enable and not config.order_message_enable
    assert changed.texts == {**config.texts, "orderMessageEnable": "true"}
    assert (changed.listen_port, changed.unknown_keys) == (1234, ("color",))
    with pytest.raises(ConfigError, match="orderMessageEnable is 'yes'"):
        with_settings(config, {"orderMessageEnable": "yes"})
    for key in ("kvConfigPath", "listenPort", "tls.config.file", "brokersMax", "color"):
        with pytest.raises(SettingsRefusedError, match=f"{key} cannot be changed"):
            with_settings(config, {"orderMessageEnable": "true", key: "1"})
