"""The trace context that a message carries in its properties, as the clients write it.

    traceparent  00-<32 hex digits: trace>-<16: span of the sender>-<2: flags, bit 0 sampled>
    tracestate   what tracing systems add, passed on as it is

Only a context that says it is sampled counts: what nobody keeps is not worth a span.
Source: https://www.w3.org/TR/trace-context/.
"""

import re
from typing import Final, NamedTuple

from ledgermq.protocol.properties import find_property

# Found in most messages that carry a context, and in few that do not.
MARK: Final = b"traceparent\x01"
_SAMPLED: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]")
_STATE_BYTES_MAX: Final = 512


class Carried(NamedTuple):
    """A sampled context, its two headers as they came."""

    traceparent: str
    tracestate: str


def find_sampled(properties: bytes) -> Carried | None:
    """Returns the context of a block of properties; None when it has none that is sampled."""
    if MARK not in properties:
        return None
    parent = find_property(properties, b"traceparent")
    if _SAMPLED.fullmatch(parent) is None:
        return None
    state = find_property(properties, b"tracestate")
    if len(state) > _STATE_BYTES_MAX or not state.isascii():
        state = b""
    return Carried(parent.decode(), state.decode())
