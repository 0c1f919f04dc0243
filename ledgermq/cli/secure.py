"""``ledgermq secure init DIR --members PEERS --name-servers ADDRESSES``: a closed cluster's files.

Makes a folder for each machine and each client, with all that belongs there: an authority of the
cluster's own and certificates by it, the secret of the group, accounts with random secrets, and
configurations that use them. Nothing that is there is ever changed: DIR must not exist. All files
are for their owner alone (0600).

    DIR/authority/          its key signs certificates: keep it on no machine of the cluster
    DIR/n0/ ...             broker.conf of a member, and what it names
    DIR/namesrv-0/ ...      namesrv.conf of a name server, and what it names
    DIR/operator/           account and certificate of an admin, for `ledgermq admin`
    DIR/application/        those of an application, which may use the topic and group `orders`
    DIR/monitoring/         with --http-port: what Prometheus needs to ask the members by HTTPS
    DIR/console/            with --console: certificates of a console, for brokers and browsers
    DIR/NEXT.txt            what to do with them

The members are those of dLegerPeers; a member serves clients 30,000 below its ledger port.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.cli import secure_http
from ledgermq.cli.certificates import Authority, Pair
from ledgermq.cli.failure import fail
from ledgermq.cli.private_files import use_private_files
from ledgermq.cli.secure_plan import (
    APPLICATION,
    EXAMPLE,
    OPERATOR,
    Place,
    Plan,
    address_of,
    addresses,
    next_text,
)
from ledgermq.dledger.addresses import ConfigValueError, parse_peers
from ledgermq.protocol.properties_file import format_properties
from ledgermq.state.errors import ConfigError

_LEDGER_PORT_DISTANCE: Final = 30_000
_SECRET_BYTES: Final = 32
_DAYS: Final = 825
_DAYS_MAX: Final = 3650
_PORT_MAX: Final = 65_535
# Name of an account.
# As a broker takes for its name; of the name of an authority it is a part.
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_.-]{1,50}")
_BROKERS: Final = "group-members"


class SecureError(Exception):
    """The arguments cannot be used, or files cannot be made; the text says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("action", choices=("init",), help="make the files of a closed cluster")
    parser.add_argument("directory", type=Path, metavar="DIR", help="made; must not exist")
    parser.add_argument(
        "--members",
        required=True,
        metavar="PEERS",
        help="as dLegerPeers: n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911",
    )
    parser.add_argument(
        "--name-servers",
        required=True,
        metavar="HOST:PORT[;...]",
        help="as namesrvAddr: 10.0.0.4:9876",
    )
    parser.add_argument("--group", default="broker-a", help="name of the group; %(default)s")
    parser.add_argument(
        "--place",
        type=Path,
        metavar="PATH",
        help="where the folders will lie on their machines; default: DIR",
    )
    parser.add_argument(
        "--days", type=int, default=_DAYS, help="until certificates expire; %(default)s"
    )
    parser.add_argument(
        "--signature",
        choices=("stock", "strong"),
        default="stock",
        help="strong: nobody can repeat or change a request, and stock clients are shut out;"
        " %(default)s",
    )
    parser.add_argument(
        "--http-port",
        type=int,
        default=0,
        metavar="PORT",
        help="HTTPS port for health and metrics of each member; 0: none; %(default)s",
    )
    parser.add_argument(
        "--console", default="", metavar="HOST:PORT", help="where a console will serve HTTPS"
    )
    parser.add_argument("--json", action="store_true", help="print what was made as JSON")


def run(options: argparse.Namespace) -> int:
    """Makes the files; returns the exit code."""
    use_private_files()
    directory: Path = options.directory.absolute()
    try:
        plan = _plan(options, directory)
        files = _files(plan)
        _check(plan, files)
        _write(directory, files)
    except (SecureError, OSError) as error:
        return fail(str(error))
    if options.json:
        folders = sorted({name.partition("/")[0] for name in files if "/" in name})
        print(json.dumps({"directory": str(directory), "folders": folders}))
    else:
        print(next_text(plan, directory), end="")
    return 0


def _plan(options: argparse.Namespace, directory: Path) -> Plan:
    if not 1 <= options.days <= _DAYS_MAX:
        raise SecureError(f"--days is {options.days}; allowed: 1 to {_DAYS_MAX}")
    if not _GROUP.fullmatch(options.group):
        raise SecureError(
            f"--group is {options.group[:64]!a}; allowed: 1 to 50 of the characters"
            " a-z A-Z 0-9 % | _ . -"
        )
    try:
        peers = parse_peers(options.members)
    except ConfigValueError as error:
        raise SecureError(f"--members: {error.value!r}; allowed: {error.allowed}") from error
    members = []
    for name, address in peers.items():
        port = address.port - _LEDGER_PORT_DISTANCE
        if port < 1:
            raise SecureError(
                f"--members: the ledger port of {name} is {address.port}; allowed:"
                f" {_LEDGER_PORT_DISTANCE + 1} to {_PORT_MAX}, clients are served"
                f" {_LEDGER_PORT_DISTANCE} below"
            )
        members.append(Place(name, address.host, port))
    return Plan(
        tuple(members),
        options.members,
        _places("--name-servers", "namesrv", options.name_servers),
        options.group,
        (options.place or directory).absolute(),
        options.days,
        options.signature,
        _http(options.http_port, members),
        _console(options.console),
    )


def _http(port: int, members: list[Place]) -> tuple[secure_http.HttpPlace, ...]:
    if port == 0:
        return ()
    places = secure_http.places_of([(place.name, place.host) for place in members], port)
    if port < 0 or max(place.port for place in places) > _PORT_MAX:
        raise SecureError(f"--http-port is {port}; allowed: 1 to {_PORT_MAX}, for all members")
    return places


def _console(text: str) -> Place | None:
    if not text:
        return None
    places = _places("--console", secure_http.CONSOLE, text)
    if len(places) != 1:
        raise SecureError(f"--console: {text[:64]!r}; allowed: one host:port")
    return places[0]._replace(name=secure_http.CONSOLE)


def _places(option: str, name: str, text: str) -> tuple[Place, ...]:
    places = []
    for number, part in enumerate(part.strip() for part in text.split(";") if part.strip()):
        host, colon, port = part.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= _PORT_MAX
        if not (colon and host and is_port):
            raise SecureError(f"{option}: {part[:64]!r}; allowed: host:port joined with ;")
        places.append(Place(f"{name}-{number}", host.strip("[]"), int(port)))
    if not places:
        raise SecureError(f"{option}: none; allowed: host:port joined with ;")
    return tuple(places)


def _files(plan: Plan) -> dict[str, bytes]:
    """All files by their names below the directory."""
    authority = Authority(f"{plan.group} authority")
    accounts = {
        name: secrets.token_urlsafe(_SECRET_BYTES) for name in (OPERATOR, APPLICATION, _BROKERS)
    }
    group_secret = secrets.token_urlsafe(2 * _SECRET_BYTES).encode()
    files = {
        "authority/authority.pem": authority.pair.certificate,
        "authority/authority-key.pem": authority.pair.key,
    }
    for place in plan.members:
        files |= _tls_files(plan, place.name, authority, place.host)
        files[f"{place.name}/broker.conf"] = _broker_conf(plan, place)
        files[f"{place.name}/plain_acl.yml"] = _broker_accounts(accounts)
        files[f"{place.name}/group.secret"] = group_secret
        files[f"{place.name}/namesrv.secret"] = accounts[_BROKERS].encode()
    for place in plan.name_servers:
        files |= _tls_files(plan, place.name, authority, place.host)
        files[f"{place.name}/namesrv.conf"] = _namesrv_conf(plan, place)
        files[f"{place.name}/plain_acl.yml"] = _namesrv_accounts(plan, accounts)
    for name in (OPERATOR, APPLICATION):
        files |= _tls_files(plan, name, authority, None)
        keys = f"accessKey: {name}\nsecretKey: {accounts[name]}\n"
        # Of what an admin signed in the stock form whoever was asked can make other requests.
        # Apache's tools read the file as well, and pass over what they do not know.
        if plan.signature == "strong" or name == OPERATOR:
            keys += "signature: strong\n"
        files[f"{name}/tools.yml"] = keys.encode()
    if plan.http:
        files |= secure_http.files_of(plan.http, plan.group, plan.root, authority.pair.certificate)
    if plan.console is not None:
        name = plan.console.name
        files |= _tls_files(plan, name, authority, plan.console.host)
        files[f"{name}/{secure_http.TLS_FILE}"] = secure_http.tls_file(plan.root / name)
    files["NEXT.txt"] = next_text(plan, plan.root).encode()
    return files


def _tls_files(plan: Plan, name: str, authority: Authority, host: str | None) -> dict[str, bytes]:
    """Certificate, key and tls.properties of a folder; without a host those of a client."""
    pair: Pair = authority.sign(name, host, plan.days)
    folder = plan.root / name
    own = {"certPath": folder / "certificate.pem", "keyPath": folder / "key.pem"}
    trusted = folder / "authority.pem"
    keys = {f"tls.client.{key}": str(path) for key, path in own.items()}
    keys |= {"tls.client.trustCertPath": str(trusted), "tls.client.authServer": "true"}
    if host is not None:
        keys |= {f"tls.server.{key}": str(path) for key, path in own.items()}
        keys |= {
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": str(trusted),
        }
    return {
        f"{name}/certificate.pem": pair.certificate,
        f"{name}/key.pem": pair.key,
        f"{name}/authority.pem": authority.pair.certificate,
        f"{name}/tls.properties": format_properties(keys).encode(),
    }


def _broker_conf(plan: Plan, place: Place) -> bytes:
    folder = plan.root / place.name
    keys = {
        "brokerName": plan.group,
        "brokerIP1": place.host,
        "listenPort": str(place.port),
        "namesrvAddr": addresses(plan),
        "storePathRootDir": str(folder / "store"),
        "enableDLegerCommitLog": "true",
        "dLegerGroup": plan.group,
        "dLegerPeers": plan.peers,
        "dLegerSelfId": place.name,
        "dLegerGroupSecretFile": str(folder / "group.secret"),
        "tls.ledger.config.file": str(folder / "tls.properties"),
        "aclEnable": "true",
        "aclFile": str(folder / "plain_acl.yml"),
        "tls.config.file": str(folder / "tls.properties"),
        "tls.server.mode": "enforcing",
        "tls.enable": "true",
        "namesrvAccessKey": _BROKERS,
        "namesrvSecretKeyFile": str(folder / "namesrv.secret"),
        "namesrvSignature": "strong",
    }
    if plan.signature == "strong":
        keys["aclSignature"] = "strong"
    for http in plan.http:
        if http.name == place.name:
            keys |= secure_http.keys_of(http, folder)
    return format_properties(keys).encode()


def _namesrv_conf(plan: Plan, place: Place) -> bytes:
    folder = plan.root / place.name
    keys = {
        "listenPort": str(place.port),
        "bindAddress": place.host,
        "kvConfigPath": str(folder / "kvConfig.json"),
        "aclEnable": "true",
        "aclFile": str(folder / "plain_acl.yml"),
        "aclSignedAddresses": address_of(place),
        "routeNeedsAccount": "true",
        "tls.config.file": str(folder / "tls.properties"),
        "tls.server.mode": "enforcing",
    }
    if plan.signature == "strong":
        keys["aclSignature"] = "strong"
    return format_properties(keys).encode()


def _broker_accounts(accounts: Mapping[str, str]) -> bytes:
    return (
        "globalWhiteRemoteAddresses: []\n"
        "accounts:\n"
        f"- accessKey: {OPERATOR}\n  secretKey: {accounts[OPERATOR]}\n  admin: true\n"
        f"- accessKey: {APPLICATION}\n  secretKey: {accounts[APPLICATION]}\n"
        "  defaultTopicPerm: DENY\n  defaultGroupPerm: DENY\n"
        f'  topicPerms: ["{EXAMPLE}=PUB|SUB"]\n  groupPerms: ["{EXAMPLE}=SUB"]\n'
    ).encode()


def _namesrv_accounts(plan: Plan, accounts: Mapping[str, str]) -> bytes:
    return (
        "globalWhiteRemoteAddresses: []\n"
        "accounts:\n"
        f"- accessKey: {OPERATOR}\n  secretKey: {accounts[OPERATOR]}\n  admin: true\n"
        f"- accessKey: {_BROKERS}\n  secretKey: {accounts[_BROKERS]}\n"
        f'  brokerNames: ["{plan.group}"]\n'
        f"- accessKey: {APPLICATION}\n  secretKey: {accounts[APPLICATION]}\n"
    ).encode()


def _check(plan: Plan, files: Mapping[str, bytes]) -> None:
    """Reads what a broker would read, before anything is written."""
    try:
        for place in plan.members:
            text = files[f"{place.name}/broker.conf"].decode()
            load_broker_config(None, dict(line.split("=", 1) for line in text.splitlines()))
    except ConfigError as error:
        raise SecureError(str(error)) from error


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Makes the directory with all files in one step, or leaves nothing.

    Raises:
        SecureError: the directory is there already.
    """
    if os.path.lexists(directory):
        raise SecureError(f"{directory} exists; it is never changed, name another one")
    work = directory.with_name(f"{directory.name}.{secrets.token_hex(4)}.tmp")
    made: list[Path] = []
    try:
        for name, content in files.items():
            path = work / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            made.append(path)
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        # Fails where somebody made something of that name meanwhile.
        work.rename(directory)
    except OSError:
        _remove(work, made)
        raise


def _remove(work: Path, made: list[Path]) -> None:
    """Removes what this process made; secrets of a cluster that never was are of no use."""
    for path in made:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in made} - {work}:
        folder.rmdir()
    if work.exists():
        work.rmdir()
