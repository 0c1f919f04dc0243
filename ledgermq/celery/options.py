"""Settings of the transport: the URL of the broker, and Celery's `broker_transport_options`.

ledgermq://[access-key:secret-key@]host:port[,host:port]/[namespace][?tls=file]
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from ledgermq.client import ClientConfig, ConfigError, Credentials, ProducerConfig, load_client_tls

SCHEME: Final = "ledgermq"
_DEFAULT_PORT: Final = 9876
_DEATHS_MAX: Final = 1_000_000
# What Celery and kombu put among the options themselves, or understand without us.
_FOREIGN: Final = frozenset(
    ("client_properties", "polling_interval", "body_encoding", "deadletter_queue")
    + ("max_retries", "interval_start", "interval_step", "interval_max", "errback", "callback")
    + ("confirm_publish", "global_keyprefix", "retry_errors", "confirm_timeout")
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Settings:
    """What the transport has to know."""

    # host:port;host:port
    name_servers: str
    namespace: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    # Path of a tls.properties; empty for plain connections.
    tls: str = ""
    # Where the topics of new queues are made; empty lets the name of the queue choose.
    broker: str = ""
    # A worker that has been silent for so long is taken for dead, and its tasks are given to
    # others. The same for all workers.
    lost_after_s: float = 30.0
    # A task with which so many workers ended, as claims.py counts them, is given to no other; 0 for
    # any number. More than there are deployments in the time that brokers keep a message, should
    # each of them kill the worker that has it.
    worker_deaths_max: int = 100
    # How long a send may take with all its retries.
    send_timeout_s: float = 15.0
    # How long a worker that ends tries to give back what it has not done.
    close_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name, low in (("lost_after_s", 1.0), ("send_timeout_s", 0.1), ("close_timeout_s", 0.0)):
            if not low <= getattr(self, name) <= 86_400:
                raise ConfigError(f"{name} is {getattr(self, name)}; allowed: {low:g} to 86400")
        if not 0 <= self.worker_deaths_max <= _DEATHS_MAX:
            told = f"worker_deaths_max is {self.worker_deaths_max}"
            raise ConfigError(f"{told}; allowed: 0 (any number) to {_DEATHS_MAX}")

    def client(self) -> ClientConfig:
        """Returns the settings of a client.

        Raises:
            TlsSettingsError: the file, or something named in it, cannot be used.
        """
        credentials = None
        if self.access_key:
            credentials = Credentials(access_key=self.access_key, secret_key=self.secret_key)
        return ClientConfig(
            namespace=self.namespace,
            credentials=credentials,
            tls=load_client_tls(self.tls) if self.tls else None,
        )

    def producer(self) -> ProducerConfig:
        """Returns the settings of a producer."""
        return ProducerConfig(client=self.client(), timeout_s=self.send_timeout_s)


def read_settings(url: str, options: Mapping[str, Any]) -> Settings:
    """Returns the settings that a URL and transport options make; the options win.

    Raises:
        ConfigError: the URL is malformed, or an option is unknown or of a wrong type.
    """
    parts = urlsplit(url)
    if parts.scheme != SCHEME:
        raise ConfigError(f"the URL begins with {parts.scheme!r}; form: {SCHEME}://host:port")
    user, _, hosts = parts.netloc.rpartition("@")
    access_key, _, secret_key = user.partition(":")
    fields: dict[str, Any] = {
        "name_servers": ";".join(map(_address, (hosts or "127.0.0.1").split(","))),
        "namespace": unquote(parts.path.strip("/")),
        "access_key": unquote(access_key),
        "secret_key": unquote(secret_key),
    }
    kinds = {name: type(default) for name, default in _defaults().items()}
    given = {name: texts[-1] for name, texts in parse_qs(parts.query).items()}
    for name, value in [*given.items(), *options.items()]:
        if name in _FOREIGN:
            continue
        if name not in kinds:
            allowed = ", ".join(sorted(kinds))
            raise ConfigError(f"transport option {name} is unknown; allowed: {allowed}")
        try:
            fields[name] = kinds[name](value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"transport option {name} is {value!r}: {error}") from error
    return Settings(**fields)


def _defaults() -> dict[str, Any]:
    """What may be set besides host, port and namespace."""
    plain = Settings(name_servers="")
    names = (
        ("access_key", "secret_key", "tls", "broker")
        + ("lost_after_s", "worker_deaths_max", "send_timeout_s", "close_timeout_s")
    )  # fmt: skip
    return {name: getattr(plain, name) for name in names}


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    return f"{host}:{port}" if colon else f"{port}:{_DEFAULT_PORT}"
