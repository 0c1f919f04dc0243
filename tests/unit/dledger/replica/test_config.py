"""The settings of a running member."""

from typing import Any

import pytest

from ledgermq.dledger.replica.config import ReplicaConfig

PEERS = "n0-127.0.0.1:40911;n1-127.0.0.1:40921;n2-my-host.example:40931"


def config_of(**changes: Any) -> ReplicaConfig:
    fields: dict[str, Any] = {"group": "g", "self_id": "n0", "peers": PEERS}
    return ReplicaConfig(**(fields | changes))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("self_id", "n3"),
        ("group", ""),
        ("flush_interval_ms", 0),
        ("reconnect_max_ms", 1),
        ("proposals_max", 0),
    ],
)
def test_bad_value_is_refused_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{key} is {value!r}, allowed: "):
        config_of(**{key: value})


def test_core_is_told_the_same() -> None:
    core = config_of(push_frames_max=2).core()
    assert (core.group, core.self_id, core.members) == ("g", "n0", ("n0", "n1", "n2"))
    assert core.push_frames_max == 2
