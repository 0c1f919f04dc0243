"""When certificates end, as the page of metrics says it: of those that ports serve with."""

import datetime
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ledgermq.broker.service.metric_sources import Certificates, certificate_end_s
from tests.certificate_files import EXPIRED, NODE, NODE_KEY, write_tls_file


def certificates(path: Path) -> Certificates:
    config = SimpleNamespace(tls_file="", member_tls_file="", http_tls_file=str(path))
    ground: Any = SimpleNamespace(
        config=config, tls=SimpleNamespace(server=None), now_ms=lambda: 0
    )  # fmt: skip
    return Certificates(ground)


def end_of(path: str) -> float:
    return certificate_end_s(Path(path).read_bytes())


def make(folder: Path, *, days: int) -> tuple[str, str]:
    """A certificate that signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    paths = folder / "other.pem", folder / "other-key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(paths[0]), str(paths[1])


def put(source: str, target: Path, moment_s: int) -> None:
    """A new file in the place of another; times of file systems may be coarse."""
    shutil.copyfile(source, target)
    os.utime(target, (moment_s, moment_s))


def test_a_new_certificate_counts_when_its_key_has_come(tmp_path: Path) -> None:
    other, other_key = make(tmp_path, days=30)
    node, key = tmp_path / "node.pem", tmp_path / "node-key.pem"
    put(NODE, node, 1)
    put(NODE_KEY, key, 1)
    named = {"tls_server_certPath": str(node), "tls_server_keyPath": str(key)}
    ends = certificates(write_tls_file(tmp_path / "tls.properties", **named))
    assert list(ends.points()) == [(("http",), end_of(NODE))]
    put(other, node, 2)
    assert list(ends.points()) == [(("http",), end_of(NODE))]
    put(other_key, key, 2)
    assert list(ends.points()) == [(("http",), end_of(other))]


def test_one_that_cannot_be_used_leaves_the_former_one(tmp_path: Path) -> None:
    node = tmp_path / "node.pem"
    put(NODE, node, 1)
    ends = certificates(write_tls_file(tmp_path / "tls.properties", tls_server_certPath=str(node)))
    assert list(ends.points()) == [(("http",), end_of(NODE))]
    for number, source in enumerate((EXPIRED, __file__), 2):
        put(source, node, number)
        assert list(ends.points()) == [(("http",), end_of(NODE))]
    node.unlink()
    assert list(ends.points()) == [(("http",), end_of(NODE))]
