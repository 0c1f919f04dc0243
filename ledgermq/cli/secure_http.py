"""HTTPS in the files of `ledgermq secure init`: health and metrics of members, and a console.

    DIR/n0/http.properties, http.token     certificate of the port, and what readers of metrics name
    DIR/monitoring/                        prometheus.yml, with the authority and the token
    DIR/console/http.properties            certificate that browsers are shown

Browsers and monitoring show no certificates, so these ports ask for none.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.protocol.properties_file import format_properties

MONITORING: Final = "monitoring"
CONSOLE: Final = "console"
TLS_FILE: Final = "http.properties"
_TOKEN: Final = "http.token"
_TOKEN_BYTES: Final = 32
_ANY: Final = "0.0.0.0"


class HttpPlace(NamedTuple):
    """Where a member has its HTTP port."""

    name: str
    host: str
    port: int


def places_of(members: Sequence[tuple[str, str]], port: int) -> tuple[HttpPlace, ...]:
    """Returns where members of these names and hosts have the port; on one machine the second one
    has the next port.
    """
    hosts: list[str] = []
    places = []
    for name, host in members:
        places.append(HttpPlace(name, host, port + hosts.count(host)))
        hosts.append(host)
    return tuple(places)


def keys_of(place: HttpPlace, folder: Path) -> dict[str, str]:
    """Returns what stands in the member's configuration."""
    return {
        "httpPort": str(place.port),
        "httpBindAddress": place.host if _is_address(place.host) else _ANY,
        "httpTlsFile": str(folder / TLS_FILE),
        "httpTokenFile": str(folder / _TOKEN),
    }


def tls_file(folder: Path) -> bytes:
    """Returns the properties of a port that asks nobody for a certificate."""
    keys = {"certPath": folder / "certificate.pem", "keyPath": folder / "key.pem"}
    return format_properties({f"tls.server.{key}": str(at) for key, at in keys.items()}).encode()


def files_of(
    places: Sequence[HttpPlace], group: str, root: Path, authority: bytes
) -> Mapping[str, bytes]:
    """Returns the files of members' ports and of monitoring, by their names below the directory."""
    token = secrets.token_urlsafe(_TOKEN_BYTES).encode()
    files = {f"{MONITORING}/{_TOKEN}": token, f"{MONITORING}/authority.pem": authority}
    for place in places:
        files[f"{place.name}/{TLS_FILE}"] = tls_file(root / place.name)
        files[f"{place.name}/{_TOKEN}"] = token
    folder = root / MONITORING
    targets = [
        f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"
        for place in places
    ]
    files[f"{MONITORING}/prometheus.yml"] = (
        "scrape_configs:\n"
        f"  - job_name: {json.dumps(group)}\n"
        "    scheme: https\n"
        f"    tls_config: {{ca_file: {json.dumps(str(folder / 'authority.pem'))}}}\n"
        f"    authorization: {{credentials_file: {json.dumps(str(folder / _TOKEN))}}}\n"
        f"    static_configs: [{{targets: {json.dumps(targets)}}}]\n"
    ).encode()
    return files


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
