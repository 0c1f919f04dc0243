"""What becomes of a packet on its way from one host to another: a pure decision."""

import random
from typing import Any, NamedTuple


class Way(NamedTuple):
    """How packets fare on the way from one host to another."""

    # Share of the packets that is dropped, 0.0 to 1.0.
    loss: float = 0.0
    # Seconds that each packet takes.
    delay_s: float = 0.0
    # Share of the packets that takes longer, so that others overtake them, and by how much at most.
    late_share: float = 0.0
    late_s: float = 0.0


WHOLE = Way()
DEAD = Way(loss=1.0)

# By sender and receiver; a pair that is not named is whole.
Ways = dict[tuple[str, str], Way]


def draw_delay(way: Way, rng: random.Random) -> float | None:
    """Returns the seconds after which a packet arrives; None when it never does."""
    if way.loss and rng.random() < way.loss:
        return None
    if way.late_share and rng.random() < way.late_share:
        return way.delay_s + rng.random() * way.late_s
    return way.delay_s


def encode_ways(ways: Ways) -> list[list[Any]]:
    """For JSON."""
    return [[sender, receiver, *way] for (sender, receiver), way in ways.items()]


def decode_ways(rows: list[list[Any]]) -> Ways:
    """The inverse of encode_ways."""
    return {(sender, receiver): Way(*way) for sender, receiver, *way in rows}
