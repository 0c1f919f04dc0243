"""The configuration keys of who may be a member of the group, or a slave of this master; `keys.py`
has the whole table.
"""

from typing import Any, Final

from ledgermq.broker.config.key import text_key
from ledgermq.dledger.addresses import ConfigValueError, parse_java_members, parse_networks
from ledgermq.state.errors import ConfigError

# Of JSON on the ledger port, as DLedger's tools name them.
TOOL_REQUESTS: Final = "METADATA;GET;APPEND;LEADERSHIP_TRANSFER"
_NOBODY: Final = "none"

MEMBER_KEYS: Final = (
    text_key(
        "dLegerGroupSecretFile",
        "group_secret_file",
        "",
        "File with the secret of the group, 32 bytes or more, the same on each member or on master"
        " and slaves; empty: none.",
    ),
    text_key(
        "dLegerGroupSecretMode",
        "group_secret_mode",
        "require",
        "require: who does not prove the secret is refused. accept: it is let in and named, while a"
        " group moves from open to closed, or to another secret.",
        ("require", "accept"),
    ),
    text_key(
        "tls.ledger.config.file",
        "member_tls_file",
        "",
        "Certificates of the members, or of master and slaves, as tls.config.file names those for"
        " clients; empty: no TLS between them.",
    ),
    text_key(
        "tls.ledger.mode",
        "member_tls_mode",
        "enforcing",
        "enforcing: who has no certificate of a member is refused. permissive: it is let in and"
        " named. disabled: no TLS.",
        ("enforcing", "permissive", "disabled"),
    ),
    text_key(
        "dLegerJavaMembers",
        "ledger_java_members",
        "",
        "Members that may speak Java's JSON, joined with a semicolon: n1 from its host in"
        " dLegerPeers, n1-10.0.0.0/8 from there, too. Empty: all, but none where a secret is"
        " required; none: none.",
    ),
    text_key(
        "dLegerToolAddresses",
        "ledger_tool_networks",
        "",
        "Addresses and networks, joined with a semicolon, from which DLedger's tools are served on"
        " the ledger port. Empty: all, but none where a secret is required; none: none.",
    ),
    text_key(
        "dLegerToolRequests",
        "ledger_tool_requests",
        TOOL_REQUESTS,
        "Requests of those tools that are served, joined with a semicolon.",
    ),
    text_key(
        "haSlaveAddresses",
        "ha_slave_networks",
        "",
        "Addresses and networks, joined with a semicolon, from which slaves copy that prove no"
        " secret, as Java's. Empty: all, but none where a secret is required; none: none.",
    ),
)


def derive_members(values: dict[str, Any]) -> None:
    """Reads the lists of these keys, once the members are known.

    Raises:
        ConfigError: a value is none that the key allows.
    """
    ids = tuple(peer.member_id for peer in values["ledger_peers"])
    for key, field in (
        ("dLegerToolAddresses", "ledger_tool_networks"),
        ("haSlaveAddresses", "ha_slave_networks"),
    ):
        text = values[field]
        values[field] = _list_of(text)
        try:
            parse_networks(values[field] or ())
        except ConfigValueError as error:
            allowed = "addresses and networks as 10.0.0.0/8, joined with a semicolon"
            raise ConfigError(key, text, allowed) from error
    text = values["ledger_java_members"]
    values["ledger_java_members"] = _list_of(text)
    try:
        parse_java_members(values["ledger_java_members"] or (), ids)
    except ConfigValueError as error:
        allowed = f"ids of dLegerPeers, as {ids[0]} or {ids[0]}-10.0.0.0/8, joined with a semicolon"
        raise ConfigError("dLegerJavaMembers", text, allowed) from error
    text = values["ledger_tool_requests"]
    requests = _list_of(text) or ()
    if not set(requests) <= set(TOOL_REQUESTS.split(";")):
        raise ConfigError("dLegerToolRequests", text, f"some of {TOOL_REQUESTS}")
    values["ledger_tool_requests"] = requests


def _list_of(text: str) -> tuple[str, ...] | None:
    """The parts of a list; None for an empty text, and no parts where it says "none"."""
    if text.strip() == _NOBODY:
        return ()
    return tuple(part.strip() for part in text.split(";") if part.strip()) or None
