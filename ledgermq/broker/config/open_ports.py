"""Whether a broker with access control leaves a port open on which accounts are not asked for.

On the ledger port and on the port for slaves the whole log is read, and written, without an
account: what access control keeps from clients would be had there. So a broker with access control
does not start while such a port is reachable from other machines by whoever likes.
"""

from ipaddress import ip_address

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.state.errors import ConfigError


def find_open_port(config: BrokerConfig) -> str | None:
    """Returns the key of a port that has to be closed; None when there is none.

    A group that knows its secret, or has certificates, without requiring them is on its way, and
    counts as closed.
    """
    if not config.is_acl_on or config.group_secret_file:
        return None
    if config.is_group_member:
        if config.member_tls_file and config.member_tls_mode != "disabled":
            return None
        return None if _is_loopback(config.own_peer.host) else "dLegerPeers"
    serves_slaves = config.wants_plain_log and not config.is_slave
    is_limited = config.ha_slave_networks is not None
    if serves_slaves and not is_limited and not _is_loopback(config.bind_host):
        return "haListenPort"
    return None


def check_open_ports(config: BrokerConfig) -> None:
    """
    Raises:
        ConfigError: a port has to be closed before this broker may start.
    """
    key = find_open_port(config)
    if key is not None:
        raise ConfigError("dLegerGroupSecretFile", "", closing_text(config, key))


def closing_text(config: BrokerConfig, key: str) -> str:
    """Says what closes a port, with the keys to set."""
    others = "" if key == "dLegerPeers" else ", or haSlaveAddresses=none or who may copy"
    port = config.own_peer.port if key == "dLegerPeers" else config.ha_listen_port
    return (
        f"a file with the group's secret: aclEnable is true, and whoever reaches port {port}"
        f" ({key}) reads and writes the log without an account{others}; while members without"
        " it still run, dLegerGroupSecretMode=accept beside it"
    )


def find_plain_links(config: BrokerConfig) -> str | None:
    """Says that members prove the secret to each other, and that what passes then is not guarded;
    None where it is, where there is no secret, and where nothing leaves the machine.
    """
    has_tls = config.member_tls_file and config.member_tls_mode != "disabled"
    if not config.group_secret_file or has_tls:
        return None
    if config.is_group_member:
        port, hosts = config.own_peer.port, [peer.host for peer in config.ledger_peers]
        is_far = len(hosts) > 1 and not all(map(_is_loopback, hosts))
    else:
        serves_slaves = config.wants_plain_log and not config.is_slave
        port, is_far = config.ha_listen_port, serves_slaves and not _is_loopback(config.bind_host)
    if not is_far:
        return None
    return (
        f"dLegerGroupSecretFile without tls.ledger.config.file: who connects to port {port} proves"
        " the secret, but what follows is not encrypted, and whoever stands between two machines"
        " reads it and may change it"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
