"""TLS on the HTTP ports of broker and console, with real sockets."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import certificate_files as certificates
from tests.certificate_files import write_tls_file
from tests.free_ports import free_ports
from tests.processes import LOOPBACK, LiveProgram, broker, run_ledgermq
from tests.waiting import wait_until

_WAIT_S = 60.0


class Port:
    """A program that serves HTTP by TLS, and the file that says with which certificate."""

    def __init__(self, program: LiveProgram, port: int, tls_file: Path, page: str) -> None:
        self.program, self.port, self.tls_file, self.page = program, port, tls_file, page

    def ask(self, trusts: str = certificates.AUTHORITY) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=trusts)
        context.check_hostname = False
        # A certificate may be trusted itself.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        connection = http.client.HTTPSConnection(
            LOOPBACK, self.port, timeout=_WAIT_S, context=context
        )
        try:
            connection.request("GET", self.page)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()


@pytest.fixture(params=["broker", "console"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Port]:
    file = write_tls_file(tmp_path / "http.properties")
    if request.param == "broker":
        [number] = free_ports(1)
        settings = (f"httpPort={number}", f"httpTlsFile={file}")
        with broker(tmp_path, "flushDiskType=ASYNC_FLUSH", *settings) as program:
            program.wait_until_serving()
            yield Port(program, number, file, "/readyz")
        return
    words = ["console", "--json", "-n", f"{LOOPBACK}:1", "--listen", f"{LOOPBACK}:0"]
    with LiveProgram([*words, "--listen-tls", file], tmp_path / "console.log") as program:
        program.wait_until("url")
        url = str(program.status["url"])
        assert url.startswith("https://")
        number = int(url.rstrip("/").rpartition(":")[2])
        yield Port(program, number, file, "/api/v1/session")


def test_it_answers_by_tls_alone_and_follows_its_certificate(port: Port) -> None:
    status, text = port.ask()
    assert status == 200, text
    # In plain nothing is said, and nobody talks it down to an old version.
    with socket.create_connection((LOOPBACK, port.port), timeout=_WAIT_S) as plain:
        plain.sendall(f"GET {port.page} HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode())
        assert plain.recv(64) == b""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    bare = socket.create_connection((LOOPBACK, port.port), timeout=_WAIT_S)
    with bare, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(bare)
    write_tls_file(
        port.tls_file,
        tls_server_certPath=certificates.SECOND_NODE,
        tls_server_keyPath=certificates.SECOND_NODE_KEY,
    )

    def is_renewed() -> bool:
        try:
            return port.ask(certificates.SECOND_NODE)[0] == 200
        except ssl.SSLCertVerificationError:
            return False

    wait_until(is_renewed, what="the new certificate", deadline_s=_WAIT_S)
    assert "new connections use what it names now" in port.program.log_text()


def test_health_asks_by_tls(tmp_path: Path) -> None:
    file = write_tls_file(tmp_path / "http.properties")
    client = write_tls_file(tmp_path / "client.properties")
    served = write_tls_file(tmp_path / "served.properties", tls_client_trustCertPath="")
    [number] = free_ports(1)
    settings = (f"httpPort={number}", f"httpTlsFile={file}")
    conf = tmp_path / "broker.conf"
    conf.write_text("\n".join(settings))
    with broker(tmp_path, "flushDiskType=ASYNC_FLUSH", *settings) as program:
        program.wait_until_serving()
        asked = ("--port", number, "--tls-config")
        for words in (("-c", conf), (*asked, client), (*asked, served)):
            done = run_ledgermq("health", *words, "--wait", "30")
            assert done.returncode == 0, done.stderr
        done = run_ledgermq("health", "--port", number)
        assert done.returncode == 1 and "no answer" in done.stderr
        stranger = write_tls_file(
            tmp_path / "stranger.properties", tls_client_trustCertPath=certificates.OTHER_AUTHORITY
        )
        done = run_ledgermq("health", "--port", number, "--tls-config", stranger)
        assert done.returncode == 1 and "certificate verify failed" in done.stderr.lower()


def test_a_certificate_that_is_none_stops_the_start(tmp_path: Path) -> None:
    file = write_tls_file(tmp_path / "http.properties", tls_server_certPath=certificates.EXPIRED)
    [number] = free_ports(1)
    settings = (f"httpPort={number}", f"httpTlsFile={file}")
    with broker(tmp_path, "flushDiskType=ASYNC_FLUSH", *settings) as program:
        assert program.wait() == 78
        assert "certificate has expired" in program.log_text()
    words = ("console", "-n", f"{LOOPBACK}:1", "--listen", f"{LOOPBACK}:0", "--listen-tls", file)
    done = run_ledgermq(*words)
    assert done.returncode == 78 and "certificate has expired" in done.stderr
