"""Config and Timing refuse what cannot work, naming key, value and allowed range."""

import pytest

from ledgermq.dledger.config import FAST_TIMING, JAVA_TIMING, Config, Timing


def make(**changes: object) -> Config:
    settings: dict[str, object] = {"group": "g", "self_id": "n0", "members": ("n0", "n1", "n2")}
    settings.update(changes)
    return Config(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"group": ""},
        {"members": ()},
        {"members": ("n0", "n0")},
        {"members": ("n0", "")},
        {"self_id": "n9"},
        {"entry_bytes_max": 48},
        {"proposals_max": 0},
        {"push_frames_max": 0},
        {"push_timeout_ms": 0},
        {"recent_bytes_max": -1},
    ],
)
def test_a_wrong_value_is_refused_by_its_key(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        make(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"heart_beat_ms": 9},
        {"heart_beats_missed_max": 0},
        {"vote_wait_min_ms": 0},
        {"vote_wait_max_ms": 150},
        {"vote_round_ms": 0},
    ],
)
def test_a_wrong_time_is_refused_by_its_key(changes: dict[str, int]) -> None:
    times = {
        "heart_beat_ms": 500,
        "heart_beats_missed_max": 3,
        "vote_wait_min_ms": 150,
        "vote_wait_max_ms": 450,
        "vote_round_ms": 300,
    }
    with pytest.raises(ValueError, match=next(iter(changes))):
        Timing(**{**times, **changes})


def test_default_times_are_those_of_the_design() -> None:
    assert FAST_TIMING.election_timeout_ms == 1500
    assert JAVA_TIMING.election_timeout_ms == 6000
    assert (JAVA_TIMING.vote_wait_min_ms, JAVA_TIMING.vote_wait_max_ms) == (300, 1000)


@pytest.mark.parametrize(("count", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_quorum_is_more_than_half(count: int, quorum: int) -> None:
    members = tuple(f"n{i}" for i in range(count))
    assert make(members=members).quorum_count == quorum


def test_peers_are_the_others_in_order() -> None:
    assert make(members=("n2", "n0", "n1")).peer_ids == ("n1", "n2")
