"""The compose file: what its brokers are told is a whole configuration."""

from __future__ import annotations

from pathlib import Path

import yaml

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.config.keys import KEY_BY_NAME
from ledgermq.cli.environment import PREFIX, settings_of
from ledgermq.cli.main import parser_of
from ledgermq.cli.settings import parse_settings

FILE = Path(__file__).parents[3] / "packaging" / "compose" / "compose.yaml"


def test_three_brokers_make_one_group() -> None:
    services = yaml.safe_load(FILE.read_text())["services"]
    configs = []
    for name in ("n0", "n1", "n2"):
        environment = services[name]["environment"]
        settings = settings_of(KEY_BY_NAME, environment)
        assert all(variable.startswith(PREFIX) for variable in environment)
        assert len(settings) == len(environment)
        words = parse_settings(services[name]["command"][1:])
        configs.append(load_broker_config(None, words, settings))
    assert [config.ledger_self_id for config in configs] == ["n0", "n1", "n2"]
    assert len({config.listen_port for config in configs}) == 3
    assert len({config.http_port for config in configs} - {0}) == 3
    assert {config.ledger_peers for config in configs} == {configs[0].ledger_peers}
    # The ledger's port of each is the one that the others have of it.
    for number, config in enumerate(configs):
        assert config.is_group_member
        assert config.ledger_peers[number].port == config.listen_port + 10_000


def test_what_cannot_start_is_not_restarted_for_ever() -> None:
    services = yaml.safe_load(FILE.read_text())["services"]
    for service in services.values():
        policy, _, count = service["restart"].partition(":")
        assert policy == "on-failure" and 3 <= int(count) <= 20


def test_each_service_is_asked_how_it_is() -> None:
    services = yaml.safe_load(FILE.read_text())["services"]
    for service in services.values():
        kind, program, command, *words = service["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "ledgermq")
        parser_of(command).parse_args(words)
