"""Limits: what the clients of one HTTP port may cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one port.

    Attributes:
        connections_max: open connections; one more closes one that waits, if any does: of the
            address, or network, that most of these come from, the one that waits longest.
        connections_per_host_rate: new connections a second of one address, or network, and as many
            at once; further ones are closed.
        body_bytes_max: of one request.
        bodies_bytes_max: of all requests that arrive or are answered, together; what comes on top
            is refused with 503, but for small bodies.
        answers_bytes_max: of all answers that their clients have not read, together; half of it
            for clients of one address, or network; what comes on top is refused with 503, but for
            small answers.
        idle_s: a connection that asks nothing for so long is closed.
        request_s: a request whose head and body take longer to arrive is dropped.
        answer_s: a view that takes longer is cancelled, and answered for with 503.
        stall_s: a client that reads nothing for so long loses its connection.
        unsent_bytes_max: what may wait for one viewer of a stream; more drops the viewer.
    """

    connections_max: int = 256
    connections_per_host_rate: int = 500
    body_bytes_max: int = 1 << 20
    bodies_bytes_max: int = 32 << 20
    answers_bytes_max: int = 64 << 20
    idle_s: float = 60.0
    request_s: float = 20.0
    answer_s: float = 60.0
    stall_s: float = 30.0
    unsent_bytes_max: int = 65_536

    def __post_init__(self) -> None:
        assert self.connections_max > 0 and self.connections_per_host_rate > 0
        assert self.body_bytes_max > 0
        assert self.bodies_bytes_max > 0
        assert self.answers_bytes_max > 0
        assert self.unsent_bytes_max > 0
        assert min(self.idle_s, self.request_s, self.answer_s, self.stall_s) > 0
