"""A closed cluster from what one command makes: it runs, serves its accounts, and nobody else."""

from __future__ import annotations

import http.client
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from ledgermq.broker.config.broker_config import load_broker_config
from tests.free_ports import free_first_port, free_ports
from tests.processes import SMALL_STORE, LiveProgram, run_ledgermq
from tests.waiting import wait_until

WAIT_S = 120.0
MEMBERS = ("n0", "n1", "n2")


class Closed:
    """The files, and the programs that run with them."""

    def __init__(
        self, folder: Path, stack: ExitStack, *more: str, members: tuple[str, ...] = MEMBERS
    ) -> None:
        self.root = folder / "closed"
        base = free_first_port()
        self.name_server = f"127.0.0.1:{base + 5}"
        places = [f"{name}-127.0.0.1:{base + 10 * i + 30_000}" for i, name in enumerate(members)]
        peers = ";".join(places)
        self.words = (
            "secure", "init", self.root, "--members", peers, "--name-servers", self.name_server,
            *more,
        )  # fmt: skip
        self.made = run_ledgermq(*self.words)
        assert self.made.returncode == 0, self.made.stderr
        self.programs = []
        for name in ("namesrv-0", *members):
            kind = "namesrv" if name.startswith("namesrv") else "broker"
            more = SMALL_STORE if kind == "broker" else ()
            words = [kind, "--json", "-c", self.root / name / f"{kind}.conf", *more]
            program = LiveProgram(words, folder / f"{name}.log")
            self.programs.append(stack.enter_context(program))
        wait_until(
            lambda: any(
                one.status.get("name_servers") and one.status.get("serving")
                for one in self.programs
            ),
            what="a leader that the name server knows",
            deadline_s=WAIT_S,
        )

    def run(self, who: str, *words: object, tls: str | None = None) -> tuple[int, str]:
        """A command as an account; gives its exit code and all that it said."""
        keys = self.root / who / "tools.yml"
        rules = self.root / (tls or who) / "tls.properties"
        done = run_ledgermq(
            *words, "-n", self.name_server, "--acl-config", keys, "--tls-config", rules
        )
        return done.returncode, done.stdout + done.stderr

    def secrets(self) -> list[str]:
        found = {(self.root / "n0" / "group.secret").read_text()}
        for path in self.root.rglob("*.yml"):
            document = yaml.safe_load(path.read_text())
            accounts = document.get("accounts", [document])
            found |= {account["secretKey"] for account in accounts}
        return sorted(found)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    with ExitStack() as stack:
        yield Closed(tmp_path_factory.mktemp("secure"), stack)


def test_an_application_sends_and_consumes_and_reaches_nothing_else(closed: Closed) -> None:
    for topic in ("orders", "other"):
        code, said = closed.run(
            "operator", "admin", "updateTopic", "-c", "DefaultCluster", "-t", topic
        )
        assert code == 0, said
    code, said = closed.run("application", "send", "-t", "orders", "hello")
    assert code == 0, said
    code, said = closed.run(
        "application", "consume", "-t", "orders", "-g", "orders", "--count", "1", "--output", "-"
    )
    assert code == 0 and "hello" in said, said
    code, said = closed.run("application", "send", "-t", "other", "--timeout", "3", "hello")
    assert code == 1, said
    code, said = closed.run(
        "application", "admin", "deleteTopic", "-c", "DefaultCluster", "-t", "orders"
    )
    assert code == 1, said


def test_who_has_no_account_or_no_certificate_gets_nowhere(closed: Closed, tmp_path: Path) -> None:
    topic = ("admin", "topicList", "-n", closed.name_server)
    assert run_ledgermq(*topic).returncode == 1, "without TLS"
    tls = closed.root / "application" / "tls.properties"
    assert run_ledgermq(*topic, "--tls-config", tls).returncode == 1, "without an account"
    bare = tmp_path / "tls.properties"
    bare.write_text(f"tls.client.trustCertPath={closed.root / 'application' / 'authority.pem'}\n")
    keys = closed.root / "operator" / "tools.yml"
    without = run_ledgermq(*topic, "--acl-config", keys, "--tls-config", bare)
    assert without.returncode == 1, "without a certificate"
    code, said = closed.run("operator", "admin", "topicList")
    assert code == 0, said
    audit = closed.root / "namesrv-0" / "audit" / "audit.log"
    wait_until(audit.exists, what="the audit log of the name server", deadline_s=WAIT_S)
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600


def test_members_show_certificates_to_each_other(closed: Closed) -> None:
    """Without TLS, or with the certificate of a client, the ledger port says nothing."""
    peer = load_broker_config(closed.root / "n0" / "broker.conf").ledger_peers[0]
    address = (peer.host, peer.port)
    with socket.create_connection(address, WAIT_S) as plain:
        plain.sendall(bytes(64))
        assert plain.recv(64) == b""
    folder = closed.root / "application"
    tls = ssl.create_default_context(cafile=folder / "authority.pem")
    tls.check_hostname = False
    tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    bare = socket.create_connection(address, WAIT_S)
    with tls.wrap_socket(bare) as client:
        client.sendall(bytes.fromhex("000000ff") + bytes(0xFF))
        assert client.recv(64) == b""


def test_rules_that_a_tool_changes_reach_all_members_sealed(closed: Closed) -> None:
    code, said = closed.run(
        "operator", "admin", "updateAclConfig", "-c", "DefaultCluster",
        "-a", "late-app", "-s", "secret-of-late-app", "-i", "PUB",
    )  # fmt: skip
    assert code == 0, said
    files = [closed.root / name / "plain_acl.yml" for name in ("n0", "n1", "n2")]
    wait_until(
        lambda: all("late-app" in file.read_text() for file in files),
        what="the account in every file",
        deadline_s=WAIT_S,
    )
    for name in ("n0", "n1", "n2"):
        for path in (closed.root / name / "store").rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                assert b"secret-of-late-app" not in content, path
                assert not any(secret.encode() in content for secret in closed.secrets()), path


def test_signatures_that_nobody_can_repeat_are_asked_for_and_given(tmp_path: Path) -> None:
    with ExitStack() as stack:
        strong = Closed(tmp_path, stack, "--signature", "strong", members=("n0",))
        words = ("admin", "updateTopic", "-c", "DefaultCluster", "-t", "orders")
        code, said = strong.run("operator", *words)
        assert code == 0, said
        code, said = strong.run("application", "send", "-t", "orders", "hello")
        assert code == 0, said
        keys = strong.root / "application" / "tools.yml"
        keys.write_text(keys.read_text().replace("signature: strong", "signature: stock"))
        code, said = strong.run("application", "send", "-t", "orders", "--timeout", "3", "hello")
        assert code == 1 and "strong" in said, said


def test_health_metrics_and_console_are_served_by_https_alone(tmp_path: Path) -> None:
    [http_port, console_port] = free_ports(2)
    more = ("--http-port", str(http_port), "--console", f"127.0.0.1:{console_port}")
    with ExitStack() as stack:
        closed = Closed(tmp_path, stack, *more, members=("n0",))
        folder = closed.root / "console"
        stack.enter_context(
            LiveProgram(
                ["console", "--json", "-n", closed.name_server, "--listen",
                 f"127.0.0.1:{console_port}", "--listen-tls", folder / "http.properties",
                 "--tls-config", folder / "tls.properties"], tmp_path / "console.log",
            )
        ).wait_until("url")  # fmt: skip
        trust = ssl.create_default_context(cafile=closed.root / "monitoring" / "authority.pem")
        token = (closed.root / "monitoring" / "http.token").read_text()
        asks: tuple[tuple[int, str, dict[str, str], int], ...] = (
            (http_port, "/livez", {}, 200), (http_port, "/metrics", {}, 401),
            (http_port, "/metrics", {"Authorization": f"Bearer {token}"}, 200),
            (console_port, "/", {}, 200),
        )  # fmt: skip
        for port, path, headers, status in asks:
            secure = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=trust)
            secure.request("GET", path, headers=headers)
            assert secure.getresponse().status == status, path
            secure.close()
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as plain:
                plain.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                assert plain.recv(64) == b""
    scrape = yaml.safe_load((closed.root / "monitoring" / "prometheus.yml").read_text())
    [job] = scrape["scrape_configs"]
    assert job["scheme"] == "https"
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{http_port}"]}]
    said = (closed.root / "NEXT.txt").read_text()
    assert token not in said and "--listen-tls" in said and "prometheus.yml" in said


def test_operator_signs_so_that_nobody_can_make_another_request_of_it(closed: Closed) -> None:
    """Its tools look at whatever name servers tell them; an application signs as stock ones do."""
    for name, form in (("operator", "strong"), ("application", None)):
        keys = yaml.safe_load((closed.root / name / "tools.yml").read_text())
        assert keys.get("signature") == form, name


def test_files_are_for_their_owner_alone_and_never_changed(closed: Closed) -> None:
    wide = [
        path
        for path in [closed.root, *closed.root.rglob("*")]
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]
    assert wide == []
    before = (closed.root / "n0" / "group.secret").read_bytes()
    again = run_ledgermq(*closed.words)
    assert again.returncode == 1 and "exists; it is never changed" in again.stderr
    assert (closed.root / "n0" / "group.secret").read_bytes() == before
    said = closed.made.stdout + (closed.root / "NEXT.txt").read_text()
    secrets = closed.secrets()
    assert len(secrets) >= 4
    assert not any(secret in said for secret in secrets)
    for name in ("n1", "n2"):
        same = closed.root / name / "group.secret"
        assert same.read_bytes() == before


def test_each_folder_has_a_key_of_its_own(closed: Closed) -> None:
    keys = [path.read_bytes() for path in closed.root.rglob("*key.pem")]
    assert len(keys) == len(set(keys)) == 7
    assert not (closed.root / "n0" / "authority-key.pem").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--members", "n0", "--name-servers", "h:1"), "--members"),
        (("--members", "n0-h:911", "--name-servers", "h:1"), "30001 to 65535"),
        (("--members", "n0-h:40911", "--name-servers", "h"), "host:port"),
        (("--members", "n0-h:40911", "--name-servers", ";"), "--name-servers: none"),
        (("--members", "n0-h:40911", "--name-servers", "h:1", "--days", "0"), "--days is 0"),
        (("--members", "n0-h:40911", "--name-servers", "h:1", "--group", "a b"), "--group"),
        (("--members", "n0-h:40911", "--name-servers", "h:1", "--http-port", "-1"), "--http-port"),
        (("--members", "n0-h:40911", "--name-servers", "h:1", "--console", "h"), "--console"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_left(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    done = run_ledgermq("secure", "init", tmp_path / "closed", *words)
    assert done.returncode == 1 and reason in done.stderr
    assert list(tmp_path.iterdir()) == []
