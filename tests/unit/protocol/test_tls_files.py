"""Certificates that change under a running program: new connections use them, old ones live on."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from ledgermq.protocol.tls.contexts import TlsSettingsError, client_context
from ledgermq.protocol.tls.engine import TlsEngine, TlsError
from ledgermq.protocol.tls.files import TlsFiles
from ledgermq.protocol.transport import CertificateWatch
from tests import certificate_files as certificates
from tests.certificate_files import write_tls_file


class Program:
    """The files of a program in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "own.pem"
        self.key = folder / "own-key.pem"
        self.trusted = folder / "trusted.pem"
        self.put(self.certificate, certificates.NODE)
        self.put(self.key, certificates.NODE_KEY)
        self.put(self.trusted, certificates.AUTHORITY)
        self.path = folder / "tls.properties"
        self.name(self.certificate)
        self.files = TlsFiles(str(self.path), "permissive", is_client=True)

    @staticmethod
    def put(path: Path, source: str) -> None:
        """Replaces a file, as tools that renew certificates do."""
        fresh = path.with_suffix(".new")
        shutil.copyfile(source, fresh)
        fresh.replace(path)

    def name(self, certificate: Path) -> None:
        """Writes the tls.properties."""
        write_tls_file(
            self.path,
            tls_server_certPath=str(certificate),
            tls_server_keyPath=str(self.key),
            tls_client_trustCertPath=str(self.trusted),
        )

    def served(self, trusts: str) -> tuple[TlsEngine, TlsEngine]:
        """A new connection of a client that knows one authority: its server's end and its own."""
        assert self.files.server is not None
        server = TlsEngine(self.files.server.context, is_server=True)
        client = TlsEngine(client_context({"tls.client.trustCertPath": trusts}), is_server=False)
        for _ in range(4):
            server.receive(client.take())
            client.receive(server.take())
        assert server.is_open and client.is_open
        return server, client


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_new_connections_use_what_is_there_now_and_old_ones_live_on(program: Program) -> None:
    server, client = program.served(certificates.AUTHORITY)
    assert not program.files.reload()
    program.put(program.certificate, certificates.SECOND_NODE)
    program.put(program.key, certificates.SECOND_NODE_KEY)
    assert program.files.reload() and not program.files.reload()
    program.served(certificates.SECOND_NODE)
    with pytest.raises(TlsError, match="certificate is not accepted"):
        program.served(certificates.AUTHORITY)
    client.write(b"still here")
    assert server.receive(client.take()) == b"still here"


def test_certificate_and_key_may_be_replaced_one_after_the_other(program: Program) -> None:
    program.put(program.certificate, certificates.SECOND_NODE)
    with pytest.raises(TlsSettingsError, match="key values mismatch"):
        program.files.reload()
    assert not program.files.reload(), "told once"
    program.served(certificates.AUTHORITY)
    program.put(program.key, certificates.SECOND_NODE_KEY)
    assert program.files.reload()
    program.served(certificates.SECOND_NODE)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("own.pem", None, "there is no file"),
        ("own.pem", b"", "are not used"),
        ("own.pem", Path(certificates.EXPIRED).read_bytes(), "expired"),
        ("own-key.pem", b"-----BEGIN PRIVATE KEY-----\n", "are not used"),
        ("trusted.pem", b"no certificate", "trustCertPath"),
        ("tls.properties", None, "No such file"),
        ("tls.properties", b"a=\\u00g0", "tls.properties"),
        ("tls.properties", b"", "tls.server.certPath is missing"),
    ],
)
def test_files_that_cannot_be_used_change_nothing(
    program: Program, name: str, content: bytes | None, words: str
) -> None:
    path = program.path.with_name(name)
    assert program.files.server is not None and program.files.client is not None
    before = (program.files.server.context, program.files.client.context)
    good = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(TlsSettingsError, match=words):
        program.files.reload()
    assert not program.files.reload()
    assert (program.files.server.context, program.files.client.context) == before
    path.write_bytes(good)
    assert program.files.reload()
    program.served(certificates.AUTHORITY)


def test_other_files_may_be_named(program: Program) -> None:
    program.put(program.key, certificates.SECOND_NODE_KEY)
    program.name(Path(certificates.SECOND_NODE))
    assert program.files.reload()
    program.served(certificates.SECOND_NODE)


def test_connections_to_others_trust_whom_they_are_told_to_trust_now(program: Program) -> None:
    def connect() -> None:
        assert program.files.server is not None and program.files.client is not None
        server = TlsEngine(program.files.server.context, is_server=True)
        client = TlsEngine(program.files.client.context, is_server=False)
        for _ in range(4):
            server.receive(client.take())
            client.receive(server.take())

    connect()
    program.put(program.trusted, certificates.OTHER_AUTHORITY)
    assert program.files.reload()
    with pytest.raises(TlsError, match="certificate is not accepted"):
        connect()


def test_log_tells_what_became_of_changed_files(program: Program) -> None:
    events: list[LogEvent] = []
    # Twisted's interfaces are unknown to the type checker.
    observer: Any = events.append
    watch = CertificateWatch(program.files)
    globalLogPublisher.addObserver(observer)
    try:
        watch.look()
        program.certificate.write_bytes(b"half a certif")
        watch.look()
        watch.look()
        program.put(program.certificate, certificates.NODE)
        watch.look()
    finally:
        globalLogPublisher.removeObserver(observer)
    told = [(event["log_level"].name, event["log_format"][:8]) for event in events]
    assert told == [("error", "certific"), ("info", "{path}: ")]
    assert str(program.certificate) in str(events[0]["error"])


def test_programs_without_files_have_nothing_to_follow() -> None:
    assert not TlsFiles("", "").is_in_use and TlsFiles("", "").server is None
    system = TlsFiles("", "", is_client=True)
    assert system.client is not None and not system.is_in_use and not system.reload()
