"""``ledgermq doctor [-c FILE] [key=value ...]``: would a broker with this configuration work here?

Checks the configuration, the addresses and ports, accounts and certificates, the disk (space, file
system, speed of a durable write), the store that lies there, the clock, the members of the group
and the name servers; with --running a cluster that runs. Prints one line for each check; exit code
1 when one of them failed.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ledgermq import kernel
from ledgermq.broker.access.rules_folder import file_path, merge, read_folder
from ledgermq.broker.config.broker_config import (
    VIP_PORT_DISTANCE,
    BrokerConfig,
    load_broker_config,
)
from ledgermq.broker.config.group_secret import find_group_secret
from ledgermq.broker.config.keys import KEY_BY_NAME
from ledgermq.broker.config.open_ports import closing_text, find_open_port, find_plain_links
from ledgermq.broker.storage.membership_check import check_membership
from ledgermq.cli import security
from ledgermq.cli.cluster_command import positive, run_with_admin
from ledgermq.cli.descriptors import descriptors_to_have
from ledgermq.cli.environment import settings_of
from ledgermq.cli.failure import fail
from ledgermq.cli.file_systems import MOUNTS, doubts_of, find_mount, reserve_blocks
from ledgermq.cli.finding import Finding, print_findings
from ledgermq.cli.moments import local_time
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.cli.running_check import check_running
from ledgermq.cli.security import Security
from ledgermq.cli.settings import default_name_servers, parse_settings
from ledgermq.cli.store_walk import StoreDirectory
from ledgermq.dledger.store.errors import MembershipError
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.tls.contexts import TlsSettingsError, load_client_tls, load_server_tls
from ledgermq.state.errors import AccessRulesError, ConfigError

CONNECT_TIMEOUT_S: Final = 2.0
SYNC_ROUNDS: Final = 20
# With fewer, a thousand queues or clients are too many.
DESCRIPTORS_MIN: Final = 4096
# A durable write slower than this makes every acknowledged send slow under SYNC_FLUSH.
SLOW_SYNC_MS: Final = 30.0
CLOCK_BACK_S_MAX: Final = 2.0
# Linux: the ports from which outgoing connections take theirs, and those left out of them.
OUTGOING_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="its properties")
    parser.add_argument(
        "-n", "--namesrvAddr", "--namesrv-addr", metavar="HOST:PORT[;...]", help="as namesrvAddr="
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--running",
        action="store_true",
        help="check the cluster that -n names, which runs: leaders, members, alarms, disks",
    )
    parser.add_argument("--group", help="with --running: this consumer group, too")
    parser.add_argument(
        "--timeout",
        type=positive,
        default=5.0,
        metavar="SECONDS",
        help="with --running: for one answer; default: %(default)g",
    )
    security.add_arguments(parser)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="win over the file")


def run(options: argparse.Namespace) -> int:
    """Runs all checks; 1 when one failed."""
    if options.group is not None and not options.running:
        fail("--group goes with --running", as_json=options.json)
        return 2
    if options.running:
        return _check_cluster(options)
    try:
        settings = parse_settings(options.settings)
        if options.namesrvAddr:
            settings["namesrvAddr"] = options.namesrvAddr
        environment = settings_of(KEY_BY_NAME, os.environ)
        config = load_broker_config(options.config, settings, environment)
    except (ConfigError, OSError, ValueError) as error:
        return fail(f"configuration: {error}", as_json=options.json)
    findings = [_config_finding(config)]
    checks: tuple[Callable[[BrokerConfig], list[Finding]], ...] = (
        _check_kernel, _check_address, _check_ports, _check_outgoing_ports, _check_access,
        _check_members_ports, _check_tls, _check_space, _check_file_systems, _check_descriptors,
        _check_sync, _check_store, _check_clock, _check_members, _check_master, _check_name_servers,
    )  # fmt: skip
    for check in checks:
        findings += check(config)
    return print_findings(findings, as_json=options.json)


def _check_cluster(options: argparse.Namespace) -> int:
    if options.config is not None or options.settings:
        fail("--running looks at a cluster, and reads no configuration", as_json=options.json)
        return 2
    options.namesrvAddr = options.namesrvAddr or default_name_servers()
    return run_with_admin(
        options,
        lambda admin, given: print_findings(check_running(admin, given.group), as_json=given.json),
    )


def _config_finding(config: BrokerConfig) -> Finding:
    if config.unknown_keys:
        unknown = ", ".join(config.unknown_keys)
        return Finding("configuration", "warning", f"unknown keys are ignored: {unknown}")
    return Finding("configuration", "good", f"broker {config.broker_name}")


def _check_kernel(config: BrokerConfig) -> list[Finding]:
    said = kernel.describe()
    if said == "compiled":
        return [Finding("kernel", "good", said)]
    return [Finding("kernel", "warning", f"{said}: each message costs more of the processor")]


def _check_address(config: BrokerConfig) -> list[Finding]:
    try:
        found = socket.getaddrinfo(config.address_host, config.listen_port, socket.AF_INET)
    except OSError as error:
        text = f"brokerIP1 {config.address_host!r} is no address: {error}"
        return [Finding("address", "failed", text)]
    return [Finding("address", "good", f"clients connect to {found[0][4][0]}")]


def _ports_of(config: BrokerConfig) -> list[tuple[str, str, int]]:
    """Key, interface and number of each port that the broker listens on."""
    ports = [("listenPort", config.bind_host, config.listen_port)]
    if config.has_vip_port:
        vip_port = config.listen_port - VIP_PORT_DISTANCE
        ports.append(("vipChannelEnable", config.bind_host, vip_port))
    if config.is_group_member:
        ports.append(("dLegerPeers", "", config.own_peer.port))
    if config.wants_plain_log and not config.is_slave:
        ports.append(("haListenPort", config.bind_host, config.ha_listen_port))
    return ports


def _check_ports(config: BrokerConfig) -> list[Finding]:
    findings = []
    for key, host, port in _ports_of(config):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                text = f"{key} {port}: {error.strerror}"
                if error.errno == errno.EADDRINUSE:
                    text += "; a cluster that runs is checked with --running"
                findings.append(Finding("port", "failed", text))
            else:
                findings.append(Finding("port", "good", f"{key} {port} is free"))
    return findings


def _check_outgoing_ports(config: BrokerConfig) -> list[Finding]:
    """While a broker is down, a connection of any program may take a port of that range."""
    try:
        first, last = map(int, OUTGOING_PORTS.read_text().split())
        parts = [part.partition("-") for part in RESERVED_PORTS.read_text().strip().split(",")]
        reserved = [(int(low), int(high or low)) for low, _, high in parts if low]
    except (OSError, ValueError):
        return []
    exposed = [
        f"{key} {port}"
        for key, _, port in _ports_of(config)
        if first <= port <= last and not any(low <= port <= high for low, high in reserved)
    ]
    if not exposed:
        return [Finding("outgoing ports", "good", "take none of this broker's")]
    text = (
        f"any connection may take {', '.join(exposed)} while the broker is down: add it to sysctl"
        " net.ipv4.ip_local_reserved_ports"
    )
    return [Finding("outgoing ports", "warning", text)]


def _existing_parent(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _check_space(config: BrokerConfig) -> list[Finding]:
    usage = shutil.disk_usage(_existing_parent(config.store_root))
    # As a broker measures it: what only root may take counts as neither.
    percent = 100 * usage.used // max(usage.used + usage.free, 1)
    # One data segment, one index segment and the segment made ahead.
    needed = 2 * config.segment_bytes + config.index_segment_bytes
    text = f"{usage.free // 2**20} MiB free, {percent} % used, a start takes {needed // 2**20} MiB"
    if usage.free < needed:
        return [Finding("disk space", "failed", text)]
    if percent > config.disk_used_percent_max:
        limit = config.disk_used_percent_max
        return [Finding("disk space", "warning", f"{text}; diskMaxUsedSpaceRatio is {limit}")]
    return [Finding("disk space", "good", text)]


def _check_file_systems(config: BrokerConfig) -> list[Finding]:
    """Of the store, and of a plain log that lies elsewhere."""
    try:
        mounts = MOUNTS.read_text()
    except OSError:
        mounts = ""
    findings: dict[Finding, None] = {}
    for path in (config.store_root, config.commit_log_path):
        directory = _existing_parent(path.absolute()).resolve()
        try:
            reserve_blocks(directory)
        except OSError as error:
            findings[Finding("file system", "failed", f"{directory}: {error.strerror}")] = None
            continue
        mount = find_mount(directory, mounts)
        doubts = doubts_of(mount) if mount is not None else []
        for doubt in doubts:
            findings[Finding("file system", "warning", f"{directory}: {doubt}")] = None
        if mount is not None and not doubts:
            text = f"{mount.kind} ({mount.source}) at {mount.point}"
            findings[Finding("file system", "good", text)] = None
    return list(findings)


def _check_descriptors(config: BrokerConfig) -> list[Finding]:
    count = descriptors_to_have()
    text = f"a broker may have {count}: one for a connection, one for a queue in use"
    verdict = "good" if count >= DESCRIPTORS_MIN else "warning"
    return [Finding("descriptors", verdict, text)]


def _check_sync(config: BrokerConfig) -> list[Finding]:
    directory = _existing_parent(config.store_root)
    try:
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, SYNC_ROUNDS * 4096)
            took_ms = []
            for i in range(SYNC_ROUNDS):
                os.pwrite(file.fileno(), os.urandom(4096), i * 4096)
                start = time.perf_counter()
                os.fdatasync(file.fileno())
                took_ms.append((time.perf_counter() - start) * 1000)
    except OSError as error:
        return [Finding("durable write", "failed", f"{directory}: {error.strerror}")]
    median = statistics.median(took_ms)
    text = f"fdatasync of 4 KiB: median {median:.1f} ms, slowest {max(took_ms):.1f} ms"
    return [Finding("durable write", "warning" if median > SLOW_SYNC_MS else "good", text)]


def _check_store(config: BrokerConfig) -> list[Finding]:
    try:
        check_membership(config, RealFileSystem())
    except (MembershipError, OSError) as error:
        return [Finding("store", "failed", str(error))]
    store = StoreDirectory(config.store_root / f"dledger-{config.ledger_self_id}")
    segments = store.segments()
    if not segments:
        return [Finding("store", "good", f"{store.ledger} is empty: the member starts anew")]
    wrong = [path for path in segments if path.stat().st_size != config.segment_bytes]
    if wrong:
        text = (
            f"{wrong[0]} has {wrong[0].stat().st_size} bytes, mappedFileSizeCommitLog is "
            f"{config.segment_bytes}: it must not change on an existing store"
        )
        return [Finding("store", "failed", text)]
    if store.term() is None:
        return [Finding("store", "failed", f"{store.ledger / 'currterm'} cannot be read")]
    text = f"{len(segments)} segments, term {store.term()}, committed {store.checkpoint()}"
    return [Finding("store", "good", text)]


def _check_clock(config: BrokerConfig) -> list[Finding]:
    """Store timestamps, retention and searches by time need a clock that never went back far."""
    store = StoreDirectory(config.store_root / f"dledger-{config.ledger_self_id}")
    newest = max((path.stat().st_mtime for path in store.segments()), default=0.0)
    ahead_s = newest - time.time()
    if ahead_s > CLOCK_BACK_S_MAX:
        text = f"the store was written {ahead_s:.0f} s in the future: the clock was set back"
        return [Finding("clock", "failed", text)]
    return [Finding("clock", "good", local_time(time.time_ns() // 1_000_000))]


def _check_members(config: BrokerConfig) -> list[Finding]:
    findings = []
    for peer in config.ledger_peers:
        if not config.is_group_member or peer.member_id == config.ledger_self_id:
            continue
        try:
            socket.create_connection((peer.host, peer.port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            # Members are started one after another: not there yet is no error.
            findings.append(Finding("member", "warning", f"{peer}: {error}"))
        else:
            findings.append(Finding("member", "good", f"{peer} answers"))
    return findings


def _check_master(config: BrokerConfig) -> list[Finding]:
    """A slave that is told its master by the name server has nothing to be looked at here."""
    if not config.is_slave or not config.ha_master_address:
        return []
    master = config.ha_master_address
    host, _, port = master.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return [Finding("master", "warning", f"haMasterAddress {master}: {error}")]
    return [Finding("master", "good", f"{master} answers")]


def _check_access(config: BrokerConfig) -> list[Finding]:
    if not config.is_acl_on:
        return []
    try:
        files = read_folder(config.acl_file).files
        rules, _ = merge({name: file.rules for name, file in files.items()})
    except AccessRulesError as error:
        return [Finding("accounts", "failed", str(error))]
    paths = {name: file_path(config.acl_file, name) for name in sorted(files)}
    findings = [
        Finding("accounts", "warning", f"{path} holds secrets and can be read by others: chmod 600")
        for name, path in paths.items()
        if files[name].is_exposed
    ]
    text = f"{len(rules.accounts)} in {', '.join(map(str, paths.values()))}"
    return findings or [Finding("accounts", "good", text)]


def _check_members_ports(config: BrokerConfig) -> list[Finding]:
    """Whether who reaches the ports of members and slaves needs to know something."""
    try:
        secret = find_group_secret(config)
    except ConfigError as error:
        return [Finding("group secret", "failed", str(error))]
    key = find_open_port(config)
    if key is not None:
        return [Finding("group secret", "failed", closing_text(config, key))]
    if secret is None:
        return []
    path = config.group_secret_file
    if config.group_secret_mode == "accept":
        text = f"{path}, not required yet (dLegerGroupSecretMode=accept)"
        return [Finding("group secret", "warning", text)]
    if plain_links := find_plain_links(config):
        return [Finding("group secret", "warning", plain_links)]
    return [Finding("group secret", "good", path)]


def _check_tls(config: BrokerConfig) -> list[Finding]:
    try:
        tls = load_server_tls(config.tls_file, config.tls_mode)
    except TlsSettingsError as error:
        return [Finding("certificate", "failed", str(error))]
    if tls is None:
        return []
    kind = "refused" if tls.refuses_plain else "served, too"
    return [Finding("certificate", "good", f"valid; plain connections are {kind}")]


def _check_name_servers(config: BrokerConfig) -> list[Finding]:
    if not config.namesrv_addresses:
        return [Finding("name server", "warning", "namesrvAddr is not set: clients find nothing")]
    try:
        security = Security(tls=load_client_tls(config.tls_file) if config.uses_tls else None)
    except TlsSettingsError as error:
        return [Finding("name server", "failed", str(error))]
    findings = []
    for address in config.namesrv_addresses:
        try:
            with Remote(address, CONNECT_TIMEOUT_S, security) as remote:
                count = len(remote.clusters().broker_addr_table)
        except (AdminError, RemoteProtocolError) as error:
            # It may be started later: a broker looks for it until it finds it.
            findings.append(Finding("name server", "warning", str(error)))
        else:
            findings.append(Finding("name server", "good", f"{address} knows {count} brokers"))
    return findings
