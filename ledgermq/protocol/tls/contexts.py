"""Certificates and rules of both ends, from a file with the keys of upstream's tls.properties.

    tls.server.certPath, tls.server.keyPath, tls.server.keyPassword   who this server is
    tls.server.need.client.auth   none (default), optional or require: certificates of clients
    tls.server.trustCertPath      who signed them
    tls.client.authServer         true (default; upstream: false): servers must be known
    tls.client.trustCertPath      who signed their certificates; names are not compared then, since
                                  brokers are addressed by numbers. Without it the system's
                                  authorities count, and names
    tls.client.certPath, tls.client.keyPath, tls.client.keyPassword   who this client is, if asked

Upstream makes up a certificate when none is given, which hides nothing from whoever is in between;
here a server without one is an error. TLS 1.2 at least.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledgermq.protocol.properties_file import parse_properties_file
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.protocol.tls.engine import TlsEngine, TlsError, reason_of

_FILE_BYTES_MAX: Final = 1 << 20
_SERVER: Final = "tls.server."
_CLIENT: Final = "tls.client."
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}
SERVER_MODES: Final = ("", "disabled", "permissive", "enforcing")
_TRUTHS: Final = {"true": True, "false": False}


class TlsSettingsError(TlsError):
    """The file or a certificate in it cannot be used; names the key."""


def read_tls_file(path: str | Path) -> dict[str, str]:
    """Reads a tls.properties.

    Raises:
        TlsSettingsError: it cannot be read.
    """
    try:
        data, _ = read_regular_file(Path(path).expanduser(), _FILE_BYTES_MAX)
        return parse_properties_file(data)
    except OSError as error:
        raise TlsSettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise TlsSettingsError(f"{path}: {error}") from error


@dataclass(slots=True, kw_only=True)
class ServerTls:
    """What a port with TLS needs."""

    # For connections that begin now; replaced when its files changed.
    context: ssl.SSLContext
    # True for the mode enforcing, False for permissive.
    refuses_plain: bool


def load_server_tls(path: str, mode: str) -> ServerTls | None:
    """Returns what a port needs; None for a port without TLS.

    Args:
        path: of a tls.properties; empty when there is none.
        mode: disabled, permissive or enforcing; empty means permissive when there is a file.

    Raises:
        TlsSettingsError: the file, or something named in it, is missing or cannot be used.
    """
    if mode == "disabled" or not (mode or path):
        return None
    if not path:
        raise TlsSettingsError(f"tls.server.mode is {mode}, but there is no tls.config.file")
    context = server_context(read_tls_file(path))
    return ServerTls(context=context, refuses_plain=mode == "enforcing")


def load_client_tls(path: str) -> ssl.SSLContext:
    """Returns what a client needs, by a tls.properties or, with an empty path, by the system's
    authorities.

    Raises:
        TlsSettingsError: the file, or something named in it, cannot be used.
    """
    return client_context(read_tls_file(path) if path else {})


def server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Returns what the server's end of a connection needs.

    Raises:
        TlsSettingsError: a key is missing or its file cannot be used, or the certificate is not
            valid now.
    """
    context = _own_server(settings)
    _check_certificate(settings)
    name = f"{_SERVER}need.client.auth"
    wanted = settings.get(name) or "none"
    if wanted not in _CLIENT_AUTH:
        raise TlsSettingsError(f"{name} is {wanted!r}; allowed: {', '.join(_CLIENT_AUTH)}")
    if wanted != "none":
        trusted = settings.get(f"{_SERVER}trustCertPath")
        if not trusted:
            raise TlsSettingsError(f"{_SERVER}trustCertPath is missing: {name} is {wanted}")
        context.verify_mode = _CLIENT_AUTH[wanted]
        _load_trusted(context, f"{_SERVER}trustCertPath", trusted)
    return context


def client_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Returns what the client's end of a connection needs.

    Raises:
        TlsSettingsError: a key has a wrong value, or a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    name = f"{_CLIENT}authServer"
    verifies = _TRUTHS.get((settings.get(name) or "true").lower())
    if verifies is None:
        raise TlsSettingsError(f"{name} is {settings[name]!r}; allowed: true, false")
    trusted = settings.get(f"{_CLIENT}trustCertPath")
    if not verifies or trusted:
        context.check_hostname = False
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    elif trusted:
        _load_trusted(context, f"{_CLIENT}trustCertPath", trusted)
    else:
        context.load_default_certs()
    if settings.get(f"{_CLIENT}certPath"):
        _load_own(context, _CLIENT, settings)
    return context


def _own_server(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_own(context, _SERVER, settings)
    return context


def _load_own(context: ssl.SSLContext, prefix: str, settings: Mapping[str, str]) -> None:
    paths = []
    for name in (f"{prefix}certPath", f"{prefix}keyPath"):
        path = settings.get(name)
        if not path:
            raise TlsSettingsError(f"{name} is missing")
        paths.append(Path(path).expanduser())
        if not paths[-1].is_file():
            raise TlsSettingsError(f"{name}: there is no file {path}")
    # A password that is not given must not be asked for on a terminal.
    password = settings.get(f"{prefix}keyPassword") or ""
    try:
        context.load_cert_chain(paths[0], paths[1], lambda: password)
    except (OSError, ValueError) as error:
        raise TlsSettingsError(
            f"{prefix}certPath, {prefix}keyPath: {paths[0]} and {paths[1]} are not used:"
            f" {reason_of(error)}"
        ) from error


def _load_trusted(context: ssl.SSLContext, name: str, path: str) -> None:
    try:
        context.load_verify_locations(Path(path).expanduser())
    except (OSError, ValueError) as error:
        raise TlsSettingsError(f"{name}: {path} is not used: {reason_of(error)}") from error


def _check_certificate(settings: Mapping[str, str]) -> None:
    """Connects to itself, so that no server starts with a certificate that has expired."""
    name = f"{_SERVER}certPath"
    path = Path(settings[name]).expanduser()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # The certificate itself is trusted here: only its time counts.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    _load_trusted(context, name, str(path))
    try:
        client = TlsEngine(context, is_server=False)
        server = TlsEngine(_own_server(settings), is_server=True)
        while not client.is_open:
            server.receive(client.take())
            client.receive(server.take())
    except TlsSettingsError:
        raise
    except TlsError as error:
        raise TlsSettingsError(f"{name}: {path}: {error}") from error
