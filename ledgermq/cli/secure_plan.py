"""What `ledgermq secure init` was asked for, and what it says to do with the files."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.cli import secure_http

# Names of accounts.
OPERATOR: Final = "operator"
APPLICATION: Final = "application"
# Topic and group that the application may use.
EXAMPLE: Final = "orders"


class Place(NamedTuple):
    """A machine's folder: its name, and the address that its program listens at."""

    name: str
    host: str
    port: int


class Plan(NamedTuple):
    """What was asked for."""

    members: tuple[Place, ...]
    peers: str
    name_servers: tuple[Place, ...]
    group: str
    # Where the folders will lie.
    root: Path
    days: int
    # Of requests; strong shuts stock clients out.
    signature: str
    # Where members have HTTPS; none: nowhere.
    http: tuple[secure_http.HttpPlace, ...]
    console: Place | None


def addresses(plan: Plan) -> str:
    """Returns the name servers, as clients are told them."""
    return ";".join(map(address_of, plan.name_servers))


def address_of(place: Place) -> str:
    """Returns "host:port"."""
    return f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"


def next_text(plan: Plan, directory: Path) -> str:
    """Returns what to do with the files, which are in a directory."""
    members = ", ".join(place.name for place in plan.members)
    servers = ", ".join(place.name for place in plan.name_servers)
    first = plan.members[0].name
    operator, application = plan.root / OPERATOR, plan.root / APPLICATION
    return (
        f"The files of the closed group {plan.group} are in {directory}.\n"
        "\n"
        f"1. Copy each folder ({servers}, {members}, {OPERATOR}, {APPLICATION}) to its machine,\n"
        f"   as {plan.root}/NAME; keep modes (cp -a, rsync -a), files are 0600, folders 0700.\n"
        f"2. Move {directory}/authority to a safe place: who has its key signs certificates.\n"
        "3. Start name servers and members, as the user who owns the files:\n"
        f"     ledgermq namesrv -c {plan.root}/{plan.name_servers[0].name}/namesrv.conf\n"
        f"     ledgermq broker -c {plan.root}/{first}/broker.conf\n"
        "4. Look at it, and make a topic, as the operator:\n"
        f"     ledgermq admin clusterList -n '{addresses(plan)}' \\\n"
        f"       --acl-config {operator}/tools.yml --tls-config {operator}/tls.properties\n"
        f"     ledgermq admin updateTopic -n '{addresses(plan)}' -c DefaultCluster"
        f" -t {EXAMPLE} \\\n"
        f"       --acl-config {operator}/tools.yml --tls-config {operator}/tls.properties\n"
        f"5. Send as the application, which may use topic and group {EXAMPLE}:\n"
        f"     ledgermq send -n '{addresses(plan)}' -t {EXAMPLE} hello \\\n"
        f"       --acl-config {application}/tools.yml --tls-config {application}/tls.properties\n"
        f"{_next_of_http(plan)}"
        "\n"
        "More accounts: ledgermq admin updateAclConfig -a NAME --secretKeyFile FILE (mode 0600).\n"
        f"Certificates expire after {plan.days} days; they are replaced while the programs run.\n"
    )


def _next_of_http(plan: Plan) -> str:
    text = ""
    if plan.http:
        name = secure_http.MONITORING
        text += f"6. Copy {name} to Prometheus, as {plan.root}/{name}; prometheus.yml is for it.\n"
    if plan.console is not None:
        folder = plan.root / plan.console.name
        judges = " ".join(f"--judge {address_of(place)}" for place in plan.members)
        text += (
            f"7. Copy {plan.console.name} to its machine; browsers trust authority.pem there:\n"
            f"     ledgermq console -n '{addresses(plan)}' --listen {address_of(plan.console)} \\\n"
            f"       --signature strong {judges} \\\n"
            f"       --listen-tls {folder}/{secure_http.TLS_FILE}"
            f" --tls-config {folder}/tls.properties\n"
        )
    return text
