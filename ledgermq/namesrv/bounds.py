"""What names, addresses and numbers may be that peers tell a name server; pure.

They are handed on to every client and written to logs, so a name is short and can be printed, and a
topic has no more queues than a client can list. Each refusal names the field, its value and what is
allowed.
"""

import re
from collections.abc import Sequence
from typing import Final

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.route import TopicConfig

# As UTF-8. Upstream's longest names are retry topics: a group of 255 characters behind a prefix.
NAME_BYTES_MAX: Final = 300
FILTER_SERVERS_MAX: Final = 10
# Clients make an object for each queue of a route.
QUEUES_MAX: Final = 65_536
# A broker of 5.x says itself after which silence it is gone.
SILENCE_MS_MAX: Final = 3_600_000
_NAME_RULE: Final = f"1 to {NAME_BYTES_MAX} bytes of characters that can be printed"
_ADDRESS: Final = re.compile(r"[^\s,;]+:[0-9]{1,5}", re.ASCII)
_ADDRESS_RULE: Final = f"host:port of at most {NAME_BYTES_MAX} printed characters"


def check_name(field: str, text: str) -> None:
    """Lets a name pass.

    Raises:
        RemoteProtocolError: it is empty, too long, or has characters that cannot be printed.
    """
    if not _is_name(text):
        raise RemoteProtocolError(field, text, _NAME_RULE)


def check_address(field: str, text: str) -> None:
    """Lets "host:port" pass.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not _is_name(text) or _ADDRESS.fullmatch(text) is None:
        raise RemoteProtocolError(field, text, _ADDRESS_RULE)


def check_topic(name: str, config: TopicConfig) -> None:
    """Lets a topic of a registration pass.

    Raises:
        RemoteProtocolError: its name is none, or it has too many queues, or fewer than none.
    """
    if not _is_name(name):
        raise RemoteProtocolError("topic", name, _NAME_RULE)
    for count in (config.read_queue_nums, config.write_queue_nums):
        if not 0 <= count <= QUEUES_MAX:
            raise RemoteProtocolError(f"queues of topic {name}", count, f"0 to {QUEUES_MAX}")


def check_filter_servers(servers: Sequence[str]) -> None:
    """Lets the filter servers of a registration pass.

    Raises:
        RemoteProtocolError: there are too many, or one has no address.
    """
    if len(servers) > FILTER_SERVERS_MAX:
        raise RemoteProtocolError("filterServerList", len(servers), FILTER_SERVERS_MAX)
    for server in servers:
        check_address("filterServerList", server)


def check_silence(silence_ms: int | None) -> None:
    """Lets the silence pass after which a broker wants to be dropped; 0 and None are the default.

    Raises:
        RemoteProtocolError: it is out of its range.
    """
    if silence_ms is not None and not 0 <= silence_ms <= SILENCE_MS_MAX:
        raise RemoteProtocolError("heartbeatTimeoutMillis", silence_ms, f"0 to {SILENCE_MS_MAX}")


def _is_name(text: str) -> bool:
    """`isprintable` knows neither controls nor line ends nor halves of characters."""
    if not text or len(text) > NAME_BYTES_MAX or not text.isprintable():
        return False
    return text.isascii() or len(text.encode("utf-8")) <= NAME_BYTES_MAX
