"""The stock Java client 4.9.3 with accounts, TLS, replies, traces and the port of old clients.

One broker and its name server, which enforce TLS and access control; mqadmin, which changes the
rules; then one without either, for what has nothing to do with them.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.certificate_files import AUTHORITY, OTHER_AUTHORITY, write_tls_file
from tests.interop import corpus
from tests.interop.builds import HERE, java_program, maven_class_path
from tests.interop.mqadmin import LOGBACK
from tests.interop.programs import PROGRAMS, Report, consume_command, run, send_command
from tests.processes import LiveProgram, broker, name_server

DEADLINE_SECONDS = 120.0
# A test is a few runs of a JVM.
pytestmark = pytest.mark.timeout(400)
RULES = """
accounts:
- {accessKey: operator, secretKey: secret-of-all, admin: true}
- accessKey: orders-app
  secretKey: secret-1
  topicPerms: [orders=PUB|SUB, questions=PUB|SUB, RMQ_SYS_TRACE_TOPIC=PUB|SUB]
  groupPerms: [readers=SUB, responders=SUB, tracers=SUB, trace_readers=SUB]
"""
USER = ("--accesskey", "orders-app", "--secretkey", "secret-1")


@dataclass(frozen=True)
class Site:
    """A name server and a broker."""

    namesrv: str
    broker: LiveProgram
    folder: Path
    # Options of a JVM that speaks TLS and checks whom it talks to.
    tls: tuple[str, ...] = ()

    def play(
        self,
        mode: str,
        topic: str,
        group: str,
        *words: str,
        tls: tuple[str, ...] | None = None,
        count: int = 4,
        expect: int = 4,
        patience_ms: int = 20_000,
    ) -> list[Report]:
        """Runs the Java program; returns its reports."""
        program = java_program("4.9.3", "ClientFeatures", pom="broker-pom.xml")
        reports: list[Report] = []
        run(
            [
                program[0], *(self.tls if tls is None else tls), *program[1:], mode,
                "--namesrv", self.namesrv, "--topic", topic, "--group", group,
                "--count", str(count), "--expect", str(expect),
                "--patience", str(patience_ms), *words,
            ],
            reports.append,
            log_path=self.folder / f"{mode}-{group}.log",
            deadline_seconds=DEADLINE_SECONDS,
        )  # fmt: skip
        return reports


def tls_options(authority: str) -> tuple[str, ...]:
    return (
        "-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority}", "-Dtls.config.file=/none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("guarded")
    rules = folder / "plain_acl.yml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    tls = (f"tls.config.file={write_tls_file(folder / 'tls.properties')}",
           "tls.server.mode=enforcing")  # fmt: skip
    settings = ("tls.enable=true", "aclEnable=true", f"aclFile={rules}", "traceTopicEnable=true")
    with name_server(folder, *tls) as namesrv:
        with broker(folder, *tls, *settings, namesrv=namesrv) as running:
            running.wait_until_serving()
            yield Site(namesrv, running, folder, tls_options(AUTHORITY))


def of(reports: list[Report], event: str) -> list[Report]:
    return [report for report in reports if report["event"] == event]


def mqadmin(site: Site, *words: str) -> str:
    """Runs mqadmin as the operator, by TLS."""
    home = site.folder / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text(LOGBACK)
    (home / "conf" / "tools.yml").write_text("accessKey: operator\nsecretKey: secret-of-all\n")
    class_path = maven_class_path(HERE / "java" / "broker-pom.xml", "4.9.3")
    done = subprocess.run(
        [
            "java", "-Xmx256m", *site.tls, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}",
            "-cp", class_path, "org.apache.rocketmq.tools.command.MQAdminStartup", *words,
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_client_works_with_its_account_by_tls(guarded: Site) -> None:
    mqadmin(guarded, "updateTopic", "-n", guarded.namesrv, "-b", guarded.broker.address,
            "-t", "orders")  # fmt: skip
    reports = guarded.play("work", "orders", "readers", *USER)
    assert of(reports, "refused") == []
    assert [report["status"] for report in of(reports, "sent")] == ["SEND_OK"] * 4
    assert Counter(report["body"] for report in of(reports, "message")) == Counter(
        f"m{number}" for number in range(4)
    )


def test_client_without_the_right_key_is_told_why(guarded: Site) -> None:
    wrong = ("--accesskey", "orders-app", "--secretkey", "secret-2")
    for words, reason in (
        ((), "No accessKey is configured"),
        (wrong, "Check signature failed for accessKey=orders-app"),
    ):
        [refused] = of(guarded.play("work", "orders", "nobody", *words), "refused")
        assert reason in refused["reason"]
    [refused] = of(guarded.play("work", "payments", "readers", *USER), "refused")
    assert "topic:payments" in refused["reason"] or "No route info" in refused["reason"]


def test_client_by_plain_connection_or_with_other_authority_gets_nowhere(guarded: Site) -> None:
    for tls in ((), tls_options(OTHER_AUTHORITY)):
        reports = guarded.play("work", "orders", "nobody", *USER, tls=tls, patience_ms=1000)
        assert of(reports, "refused") and not of(reports, "sent")


def test_replies_reach_who_asked(guarded: Site) -> None:
    mqadmin(guarded, "updateTopic", "-n", guarded.namesrv, "-b", guarded.broker.address,
            "-t", "questions")  # fmt: skip
    reports = guarded.play("request", "questions", "responders", *USER)
    assert [report["body"] for report in of(reports, "reply")] == [
        f"QUESTION{number}" for number in range(4)
    ]
    assert [report["status"] for report in of(reports, "sent")] == ["SEND_OK"] * 4
    assert of(reports, "refused") == []


def test_traces_are_stored(guarded: Site) -> None:
    traced = guarded.play("trace", "orders", "tracers", *USER, count=4, expect=4)
    ids = {report["id"] for report in of(traced, "sent")}
    assert len(ids) == 4
    text = ""
    # Consumers send their traces when they like, in a message of their own or with the producers'.
    while "SubBefore" not in text:
        found = guarded.play(
            "work", "RMQ_SYS_TRACE_TOPIC", "trace_readers", *USER, count=0, expect=1
        )
        text += "".join(report["body"] for report in of(found, "message"))
    records = [record.split("\x01") for record in text.split("\x02")]
    assert {record[5] for record in records if record[0] == "Pub"} == ids
    assert {record[2] for record in records if record[0] == "Pub"} == {"DefaultRegion"}
    assert "SubBefore" in {record[0] for record in records}
    assert "SubAfter" in {record[0] for record in records}


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With access control and without TLS, which not all clients speak."""
    folder = tmp_path_factory.mktemp("signing")
    rules = folder / "plain_acl.yml"
    names = [program.name for program in PROGRAMS]
    permissions = ", ".join(f"{many_topic(name)}=PUB|SUB" for name in names)
    groups = ", ".join(f"{many_topic(name)}_{name.replace('-', '_')}=SUB" for name in names)
    rules.write_text(
        "accounts:\n"
        "- {accessKey: operator, secretKey: secret-of-all, admin: true}\n"
        f"- {{accessKey: orders-app, secretKey: secret-1, topicPerms: [{permissions}],"
        f" groupPerms: [{groups}]}}\n"
    )
    with name_server(folder) as namesrv:
        settings = ("aclEnable=true", f"aclFile={rules}")
        with broker(folder, *settings, namesrv=namesrv) as running:
            yield Site(namesrv, running.wait_until_serving(), folder)


def many_topic(name: str) -> str:
    return f"many_{name.replace('-', '_').replace('.', '_')}"


@pytest.mark.parametrize("name", ["go", "cpp", "node"])
def test_other_clients_sign_as_the_broker_checks(
    signing: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [program] = [program for program in PROGRAMS if program.name == name]
    topic = many_topic(name)
    mqadmin(signing, "updateTopic", "-n", signing.namesrv, "-b", signing.broker.address,
            "-t", topic, "-r", "4", "-w", "4")  # fmt: skip
    file = signing.folder / f"{name}.corpus"
    wanted = corpus.write(file, name, 20, 1)
    monkeypatch.setenv("INTEROP_ACCESS_KEY", "orders-app")
    monkeypatch.setenv("INTEROP_SECRET_KEY", "secret-1")
    reports: list[Report] = []
    run(
        send_command(program, namesrv=signing.namesrv, topic=topic, corpus=file, queues=4),
        reports.append,
        log_path=signing.folder / f"{name}-send.log",
        deadline_seconds=DEADLINE_SECONDS,
    )
    assert {report["seq"] for report in of(reports, "sent")} == set(wanted)
    run(
        consume_command(program, namesrv=signing.namesrv, topic=topic, expect=20, idle_seconds=1),
        reports.append,
        log_path=signing.folder / f"{name}-consume.log",
        deadline_seconds=DEADLINE_SECONDS,
    )
    digests = {report["sha256"] for report in of(reports, "message")}
    assert digests == {expected.digest for expected in wanted.values()}


def test_mqadmin_changes_the_rules(guarded: Site) -> None:
    address = guarded.broker.address
    late = ("--accesskey", "late-app", "--secretkey", "secret-3")
    to = ("-n", guarded.namesrv, "-b", address)
    made = mqadmin(guarded, "updateAclConfig", *to, "-a", "late-app", "-s", "secret-3",
                   "-t", "orders=PUB|SUB", "-g", "late=SUB")  # fmt: skip
    assert "success" in made
    assert of(guarded.play("work", "orders", "late", *late, expect=1), "refused") == []
    addresses = mqadmin(guarded, "updateGlobalWhiteAddr", *to, "-g", "10.9.9.9")
    assert "success" in addresses
    version = mqadmin(guarded, "clusterAclConfigVersion", "-n", guarded.namesrv, "-c",
                      "DefaultCluster")  # fmt: skip
    assert address in version
    listed = mqadmin(guarded, "getAccessConfigSubCommand", "-n", guarded.namesrv, "-c",
                     "DefaultCluster")  # fmt: skip
    assert "late-app" in listed and "10.9.9.9" in listed
    gone = mqadmin(guarded, "deleteAccessConfig", *to, "-a", "late-app")
    assert "success" in gone
    [refused] = of(guarded.play("work", "orders", "late", *late), "refused")
    assert "No acl config for late-app" in refused["reason"]


def test_port_for_important_people_takes_sends(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        with broker(tmp_path, "vipChannelEnable=true", namesrv=namesrv) as running:
            site = Site(namesrv, running.wait_until_serving(), tmp_path)
            reports = site.play("vip", "orders", "readers")
            assert [report["status"] for report in of(reports, "sent")] == ["SEND_OK"] * 4
