"""TLS without sockets: two engines back to back, and what is said of wrong certificates."""

from pathlib import Path

import pytest

from ledgermq.protocol.tls.contexts import (
    TlsSettingsError,
    client_context,
    read_tls_file,
    server_context,
)
from ledgermq.protocol.tls.engine import HANDSHAKE_BYTE, TlsEngine, TlsError
from tests import certificate_files as certificates
from tests.certificate_files import CLIENT, SERVER

OWN = {"tls.client.certPath": certificates.NODE, "tls.client.keyPath": certificates.NODE_KEY}
ASKING = {
    **SERVER,
    "tls.server.need.client.auth": "require",
    "tls.server.trustCertPath": certificates.AUTHORITY,
}


def engines(
    server: dict[str, str] = SERVER, client: dict[str, str] = CLIENT, name: str = "127.0.0.1"
) -> tuple[TlsEngine, TlsEngine]:
    return (
        TlsEngine(server_context(server), is_server=True),
        TlsEngine(client_context(client), is_server=False, server_name=name),
    )


def shake(server: TlsEngine, client: TlsEngine) -> None:
    for _ in range(4):
        server.receive(client.take())
        client.receive(server.take())


def test_bytes_go_both_ways_whole_and_in_pieces() -> None:
    server, client = engines()
    hello = client.take()
    assert hello[0] == HANDSHAKE_BYTE
    for place in range(len(hello)):
        assert server.receive(hello[place : place + 1]) == b""
    client.receive(server.take())
    server.receive(client.take())
    assert server.is_open and client.is_open
    body = bytes(range(256)) * 4096
    client.write(body)
    ciphertext = client.take()
    assert body[:64] not in ciphertext
    received = b"".join(
        server.receive(ciphertext[start : start + 10_000])
        for start in range(0, len(ciphertext), 10_000)
    )
    assert received == body
    server.write(b"answer")
    assert client.receive(server.take()) == b"answer"
    client.end()
    assert server.receive(client.take()) == b"" and server.is_ended


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (CLIENT, "a-name-that-nobody-has"),
        ({"tls.client.authServer": "false"}, "127.0.0.1"),
        ({**CLIENT, **OWN}, "127.0.0.1"),
    ],
)
def test_client_is_content_with_what_it_was_told_to_trust(
    client: dict[str, str], name: str
) -> None:
    server, own = engines(client=client, name=name)
    shake(server, own)
    assert own.is_open


@pytest.mark.parametrize("client", [{}, {"tls.client.trustCertPath": certificates.OTHER_AUTHORITY}])
def test_client_refuses_a_server_that_it_does_not_know(client: dict[str, str]) -> None:
    server, own = engines(client=client)
    with pytest.raises(TlsError, match="certificate is not accepted: .*issuer"):
        shake(server, own)
    with pytest.raises(TlsError, match="unknown ca"):
        server.receive(own.take())


def test_server_may_ask_for_certificates() -> None:
    server, known = engines(ASKING, {**CLIENT, **OWN})
    shake(server, known)
    assert server.is_open
    server, unknown = engines(ASKING)
    with pytest.raises(TlsError, match="peer did not return a certificate"):
        shake(server, unknown)


def test_names_are_those_of_a_certificate_that_was_verified() -> None:
    asking = {**ASKING, "tls.server.need.client.auth": "optional"}
    for settings, client, names in (
        (ASKING, {**CLIENT, **OWN}, ("localhost", "127.0.0.1")),
        (asking, {**CLIENT, **OWN}, ("localhost", "127.0.0.1")),
        (asking, CLIENT, ()),
        # Nobody asked for it.
        (SERVER, {**CLIENT, **OWN}, ()),
    ):
        server, known = engines(settings, client)
        assert server.certificate_names() == ()
        shake(server, known)
        assert server.is_open and server.certificate_names() == names


def test_bytes_that_are_no_tls_end_it() -> None:
    server, client = engines()
    with pytest.raises(TlsError):
        server.receive(b"\x16\x03\x01\x00\x05hello")
    with pytest.raises(TlsError):
        client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_key_under_a_password_is_opened_with_it(tmp_path: Path) -> None:
    locked = {**SERVER, "tls.server.keyPath": certificates.LOCKED_KEY}
    server_context({**locked, "tls.server.keyPassword": "open-sesame"})
    for wrong in ({}, {"tls.server.keyPassword": "guess"}):
        with pytest.raises(TlsSettingsError, match="tls.server.keyPath"):
            server_context({**locked, **wrong})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tls.server.certPath": ""}, "tls.server.certPath is missing"),
        ({"tls.server.keyPath": ""}, "tls.server.keyPath is missing"),
        ({"tls.server.keyPath": "/none"}, "tls.server.keyPath: there is no file /none"),
        ({"tls.server.certPath": certificates.NODE_KEY}, "are not used"),
        ({"tls.server.certPath": certificates.AUTHORITY}, "key values mismatch"),
        ({"tls.server.certPath": certificates.EXPIRED}, "expired.pem: .*certificate has expired"),
        ({"tls.server.need.client.auth": "yes"}, "allowed: none, optional, require"),
        ({"tls.server.need.client.auth": "optional"}, "tls.server.trustCertPath is missing"),
    ],
)
def test_server_with_wrong_settings_names_the_key(change: dict[str, str], words: str) -> None:
    with pytest.raises(TlsSettingsError, match=words):
        server_context({**SERVER, **change})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls.client.authServer": "maybe"}, "allowed: true, false"),
        ({"tls.client.trustCertPath": "/none"}, "tls.client.trustCertPath: /none is not used"),
        ({"tls.client.certPath": certificates.NODE}, "tls.client.keyPath is missing"),
    ],
)
def test_client_with_wrong_settings_names_the_key(settings: dict[str, str], words: str) -> None:
    with pytest.raises(TlsSettingsError, match=words):
        client_context(settings)


def test_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_bytes(b"# caf\xe9\ntls.server.certPath = /a\\\n/b\n")
    assert read_tls_file(path) == {"tls.server.certPath": "/a/b"}
    with pytest.raises(TlsSettingsError, match="No such file"):
        read_tls_file(tmp_path / "none")
    path.write_text("a=\\u00g0")
    with pytest.raises(TlsSettingsError, match="tls.properties: "):
        read_tls_file(path)
