"""Whether a strong signature is for this program: by which addresses it is reached.

These are those that it is told to be reached by, where addresses are translated on the way or by a
name that only clients know, and the one that a connection came to, with its ports.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

# Told a "host:port" that a request was signed for, and the address that the request came to.
IsOwn: TypeAlias = Callable[[str, str], bool]


def own_ends(named: Iterable[str], ports: Callable[[], Sequence[int]]) -> IsOwn:
    """Returns the test of a "host:port", and of the address that the request came to.

    Args:
        named: "host:port" of each other way; empty ones do not count.
        ports: at which connections come in.
    """
    told = {_plain(text) for text in named if text}

    def is_own(signed_for: str, own_host: str) -> bool:
        text = _plain(signed_for)
        return text in told or text in {_plain(f"{own_host}:{port}") for port in ports()}

    return is_own


def _plain(address: str) -> str:
    host, _, port = address.strip().rpartition(":")
    return f"{host.strip('[]').lower()}:{port}"
