"""The configuration keys of the HTTP port, and whether it may be opened where they say."""

import re
from ipaddress import ip_address
from typing import Any, Final

from ledgermq.broker.config.key import I32_MAX, integer, switch, text_key
from ledgermq.state.errors import ConfigError

_LABEL: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Labels that metrics have already.
_TAKEN: Final = frozenset(
    ("cluster", "broker", "member", "node_type", "node_id", "storage_type", "storage_medium")
    + (
        "topic",
        "consumer_group",
        "group",
        "peer",
        "reason",
        "result",
        "level",
        "le",
        "port",
        "code",
    )
)

HTTP_KEYS: Final = (
    integer(
        "httpPort",
        "http_port",
        0,
        "",
        0,
        65_535,
        "Port for health (/livez, /readyz, /startupz, /quorum-safe) and /metrics; 0: none.",
    ),
    text_key(
        "httpBindAddress",
        "http_bind_host",
        "127.0.0.1",
        "Address that httpPort listens on; one beyond loopback needs httpTokenFile.",
    ),
    text_key(
        "httpTokenFile",
        "http_token_file",
        "",
        "File with a token, readable by its owner only: whoever reads metrics names it"
        " (Authorization: Bearer); health needs none.",
    ),
    text_key(
        "httpTlsFile",
        "http_tls_file",
        "",
        "Certificate of httpPort, as tls.config.file names that for clients; nobody is answered in"
        " plain then. Empty: no TLS.",
    ),
    switch(
        "httpInsecure",
        "is_http_insecure",
        False,
        "Let metrics be read beyond loopback by everybody, without httpTokenFile.",
    ),
    text_key(
        "httpHostNames",
        "http_host_names",
        "",
        "Names under which httpPort is asked, joined with a semicolon, beside addresses, localhost"
        " and brokerIP1.",
    ),
    text_key(
        "metricsLabel",
        "metric_labels",
        "",
        "Labels of all metrics, name:value joined with a comma.",
    ),
    integer(
        "metricsCardinalityLimit",
        "metric_series_max",
        10_000,
        "",
        1,
        I32_MAX,
        "Topics, and pairs of topic and group, that have series of their own, most active first;"
        " the rest is one, _other.",
    ),
)


def parse_labels(text: str) -> dict[str, str]:
    """Returns the labels of metricsLabel.

    Raises:
        ConfigError: a name is none, or comes twice.
    """
    labels: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, colon, value = part.partition(":")
        name = name.strip()
        if not colon or not _LABEL.fullmatch(name) or name in labels or name in _TAKEN:
            allowed = (
                "name:value joined with a comma; names of letters, digits and _, each once, and not"
                f" {', '.join(sorted(_TAKEN))}"
            )
            raise ConfigError("metricsLabel", text, allowed)
        labels[name] = value.strip()
    return labels


def derive_http(values: dict[str, Any]) -> None:
    """Splits lists, and checks that the port is not open to everybody by oversight.

    Raises:
        ConfigError: no address, or one beyond loopback that nothing protects.
    """
    parse_labels(values["metric_labels"])
    host = values["http_bind_host"]
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ConfigError("httpBindAddress", host, "an address, as 127.0.0.1") from None
    names = values["http_host_names"].split(";")
    values["http_host_names"] = tuple(name.strip() for name in names if name.strip())
    is_protected = values["http_token_file"] or values["is_http_insecure"]
    if values["http_port"] and not address.is_loopback and not is_protected:
        allowed = (
            "127.0.0.1, or another one with httpTokenFile, a file with a token for whoever reads"
            " metrics; httpInsecure=true lets everybody who reaches the port read names of topics"
            " and groups"
        )
        raise ConfigError("httpBindAddress", host, allowed)
