"""Settings that come from the environment, and who wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.broker.config.keys import KEY_BY_NAME
from ledgermq.cli.environment import settings_of, variable_of
from ledgermq.cli.main import main
from ledgermq.namesrv.config import KEYS


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("brokerName", "LEDGERMQ_BROKER_NAME"),
        ("dLegerSelfId", "LEDGERMQ_D_LEGER_SELF_ID"),
        ("brokerIP1", "LEDGERMQ_BROKER_IP1"),
        ("tls.server.mode", "LEDGERMQ_TLS_SERVER_MODE"),
    ],
)
def test_a_key_has_a_variable_in_capitals(key: str, variable: str) -> None:
    assert variable_of(key) == variable
    assert settings_of(KEY_BY_NAME, {variable: "x"}) == {key: "x"}
    assert settings_of(KEY_BY_NAME, {f"LEDGERMQ_{key}": "x", variable: "x"}) == {key: "x"}


def test_no_two_keys_share_a_variable() -> None:
    for keys in (KEY_BY_NAME, KEYS):
        names = [variable_of(key) for key in keys]
        assert len(set(names)) == len(names)


def test_variables_of_others_are_passed_over() -> None:
    """An orchestrator makes them for a service that is called ledgermq."""
    others = {"LEDGERMQ_PORT": "tcp://10.0.0.7:9876", "LEDGERMQ_SERVICE_HOST": "10.0.0.7"}
    assert settings_of(KEY_BY_NAME, others) == settings_of(KEYS, others) == {}


def test_two_variables_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="LEDGERMQ_brokerName and LEDGERMQ_BROKER_NAME set brok"):
        settings_of(KEY_BY_NAME, {"LEDGERMQ_brokerName": "a", "LEDGERMQ_BROKER_NAME": "b"})


def test_file_wins_over_environment_and_words_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=of-the-file\nlistenPort=1\n")
    for name in ("BROKER_NAME", "LISTEN_PORT", "BROKER_CLUSTER_NAME"):
        monkeypatch.setenv(f"LEDGERMQ_{name}", "7")
    assert main(["broker", "-p", "-c", str(file), "listenPort=2"]) == 0
    text = capsys.readouterr().out
    assert "# from broker.conf\nbrokerName=of-the-file\n" in text
    assert "# from the command line\nlistenPort=2\n" in text
    variable = "LEDGERMQ_BROKER_CLUSTER_NAME"
    assert f"# from the environment ({variable})\nbrokerClusterName=7\n" in text


def test_a_wrong_value_of_the_environment_is_refused_like_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEDGERMQ_LISTEN_PORT", "many")
    assert main(["broker", "-p"]) == 78
    assert "listenPort" in capsys.readouterr().err
    assert main(["namesrv", "--print-config"]) == 78
    assert "listenPort" in capsys.readouterr().err
