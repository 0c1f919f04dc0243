"""TLS on the ports of real programs: name server, broker, Python client, commands; with ACL."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledgermq.client import (
    ClientConfig,
    ClientError,
    ConsumerConfig,
    Credentials,
    Message,
    NoRouteError,
    Producer,
    ProducerConfig,
    PullConsumer,
    load_client_tls,
)
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.errors import ConfigError
from tests import certificate_files as certificates
from tests.certificate_files import write_tls_file
from tests.e2e.wire_client import WireClient, request, send_fields
from tests.processes import LiveProgram, broker, name_server, run_ledgermq
from tests.waiting import wait_until

RULES = """
accounts:
- {accessKey: operator, secretKey: secret-of-all, admin: true}
- {accessKey: orders-app, secretKey: secret-1, topicPerms: [orders=PUB|SUB], groupPerms: [g=SUB]}
"""
USER = Credentials(access_key="orders-app", secret_key="secret-1")


@dataclass(frozen=True)
class Site:
    """A name server and a broker that both enforce TLS, with access control."""

    namesrv: str
    broker: LiveProgram
    tls_file: Path
    acl_file: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tls")
    rules, tools = folder / "plain_acl.yml", folder / "tools.yml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    tools.write_text("accessKey: operator\nsecretKey: secret-of-all\n")
    file = write_tls_file(folder / "tls.properties")
    tls = (f"tls.config.file={file}", "tls.server.mode=enforcing")
    acl = ("aclEnable=true", f"aclFile={rules}")
    with name_server(folder, *tls) as namesrv:
        settings = ("flushDiskType=ASYNC_FLUSH", "tls.enable=true", *tls, *acl)
        with broker(folder, *settings, namesrv=namesrv) as running:
            yield Site(namesrv, running.wait_until_serving(), file, tools)


def config(site: Site, credentials: Credentials | None = USER) -> ClientConfig:
    return ClientConfig(credentials=credentials, tls=load_client_tls(str(site.tls_file)))


async def send(
    site: Site,
    client: ClientConfig,
    topic: str = "orders",
    count: int = 1,
    timeout_s: float = 60,
) -> None:
    settings = ProducerConfig(client=client, timeout_s=timeout_s)
    async with Producer(site.namesrv, "p", config=settings) as producer:
        for number in range(count):
            await producer.send(Message(topic, b"m%d" % number * 4000, properties={"a": 'ü"\\'}))


async def pull_all(site: Site) -> list[bytes]:
    """All bodies of the topic; none while it is not in the route, which takes a moment."""
    settings = ConsumerConfig(client=config(site))
    async with PullConsumer(site.namesrv, "g", config=settings) as consumer:
        bodies: list[bytes] = []
        try:
            queues = await consumer.queues("orders")
        except NoRouteError:
            return bodies
        for queue in queues:
            found = await consumer.pull(queue, 0)
            bodies += [message.body for message in found.messages]
        return bodies


def test_client_sends_and_pulls_with_signature_in_tls(site: Site) -> None:
    asyncio.run(send(site, config(site), count=3))
    sent = [b"m%d" % number * 4000 for number in range(3)]
    wait_until(lambda: sorted(asyncio.run(pull_all(site))) == sent, what="what was sent")


def test_plain_clients_are_turned_away(site: Site) -> None:
    with WireClient(site.broker.address) as client, pytest.raises(ConnectionError):
        client.ask(310, send_fields("orders"), b"x")
    plain = ClientConfig(credentials=USER)
    with pytest.raises(ClientError):
        asyncio.run(send(site, plain, timeout_s=2))


def test_client_that_knows_another_authority_only_is_told_so(site: Site) -> None:
    stranger = load_client_tls(
        str(write_tls_file(site.tls_file.with_name("other.properties"),
                           tls_client_trustCertPath=certificates.OTHER_AUTHORITY))
    )  # fmt: skip
    with pytest.raises(ClientError, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(send(site, ClientConfig(credentials=USER, tls=stranger), timeout_s=2))


def test_wrong_account_is_told_so(site: Site) -> None:
    wrong = Credentials(access_key="orders-app", secret_key="secret-2")
    with pytest.raises(ClientError, match="Check signature failed for accessKey=orders-app"):
        asyncio.run(send(site, config(site, wrong)))
    with pytest.raises(ClientError, match="topic:payments"):
        asyncio.run(send(site, config(site), topic="payments"))


def test_commands_take_account_and_tls_from_files_or_environment(site: Site) -> None:
    options = ("--tls-config", site.tls_file, "--acl-config", site.acl_file)
    status = run_ledgermq("admin", "brokerStatus", "-n", site.namesrv, "-b", site.broker.address,
                          *options)  # fmt: skip
    assert status.returncode == 0 and "brokerVersion" in status.stdout
    sent = run_ledgermq("send", "-n", site.namesrv, "-t", "orders", "text", *options)
    assert sent.returncode == 0, sent.stderr
    environment = {
        **os.environ, "LEDGERMQ_TLS_CONFIG": str(site.tls_file),
        "LEDGERMQ_ACCESS_KEY": "orders-app", "LEDGERMQ_SECRET_KEY": "secret-1",
    }  # fmt: skip
    words = ("consume", "-n", site.namesrv, "-t", "orders", "-g", "g", "--until-idle", "60")
    consumed = run_ledgermq(*words, "--checksum", "--json", "--count", "1", env=environment)
    assert consumed.returncode == 0 and '"count": 1' in consumed.stdout
    missing = run_ledgermq("send", "-n", site.namesrv, "-t", "orders", "text",
                           "--acl-config", site.tls_file)  # fmt: skip
    assert missing.returncode == 1 and "accessKey and secretKey must both" in missing.stderr


def test_port_that_permits_both_serves_both(tmp_path: Path) -> None:
    file = write_tls_file(tmp_path / "tls.properties")
    with broker(tmp_path, "flushDiskType=ASYNC_FLUSH", f"tls.config.file={file}") as running:
        address = running.wait_until_serving().address
        with WireClient(address) as client:
            assert client.send("t", 0, b"plain").code == 0
        host, _, port = address.rpartition(":")
        context = load_client_tls(str(file))
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            secured.sendall(request(10, send_fields("t"), b"secured"))
            assert b'"code":0' in secured.recv(4096)
            assert secured.version() in ("TLSv1.2", "TLSv1.3")


def test_broker_takes_over_renewed_certificates_while_it_runs(tmp_path: Path) -> None:
    file = write_tls_file(tmp_path / "tls.properties")
    with broker(tmp_path, "flushDiskType=ASYNC_FLUSH", f"tls.config.file={file}") as running:
        host, _, port = running.wait_until_serving().address.rpartition(":")

        def connect(trusts: str) -> ssl.SSLSocket:
            own = write_tls_file(tmp_path / "client.properties", tls_client_trustCertPath=trusts)
            plain = socket.create_connection((host, int(port)), timeout=30)
            return load_client_tls(str(own)).wrap_socket(plain, server_hostname=host)

        def is_renewed() -> bool:
            try:
                connect(certificates.SECOND_NODE).close()
            except ssl.SSLCertVerificationError:
                return False
            return True

        with connect(certificates.AUTHORITY) as old:
            old.sendall(request(10, send_fields("t"), b"before"))
            assert b'"code":0' in old.recv(4096)
            write_tls_file(
                file,
                tls_server_certPath=certificates.SECOND_NODE,
                tls_server_keyPath=certificates.SECOND_NODE_KEY,
            )
            wait_until(is_renewed, what="the new certificate", deadline_s=60)
            old.sendall(request(10, send_fields("t"), b"after"))
            assert b'"code":0' in old.recv(4096)
        assert "new connections use what it names now" in running.log_text()


@pytest.mark.parametrize(
    ("program", "change", "words"),
    [
        ("broker", {"tls_server_certPath": certificates.EXPIRED}, "certificate has expired"),
        ("namesrv", {"tls_server_keyPath": "/none"}, "keyPath: there is no file /none"),
    ],
)
def test_program_with_a_bad_certificate_does_not_start(
    tmp_path: Path, program: str, change: dict[str, str], words: str
) -> None:
    file = write_tls_file(tmp_path / "tls.properties", **change)
    ended = run_ledgermq(
        program, "listenPort=0", f"tls.config.file={file}", f"storePathRootDir={tmp_path}"
    )
    assert ended.returncode == 78 and words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_mode_that_is_none_or_lacks_certificates_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls.server.mode .* permissive"):
        load_namesrv_config(None, {"tls.server.mode": "on"})
    bare = run_ledgermq("namesrv", "listenPort=0", "tls.server.mode=enforcing")
    assert bare.returncode == 78 and "there is no tls.config.file" in bare.stderr
