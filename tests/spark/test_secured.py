"""Reads, writes and the arguments of jobs against a broker with access control that refuses plain
connections."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Message, ProducerConfig
from ledgermq.client.blocking import Producer
from ledgermq.spark import SparkSourceError
from ledgermq.spark.errors import OptionError
from ledgermq.spark.jobs.cluster_arguments import (
    ClusterArguments,
    add_cluster_arguments,
    cluster_of,
)
from tests.certificate_files import AUTHORITY, OTHER_AUTHORITY, write_tls_file
from tests.processes import broker, name_server
from tests.spark import direct

RULES = """
accounts:
- {accessKey: reports, secretKey: secret-1, topicPerms: [orders=PUB|SUB], groupPerms: [g=SUB]}
"""

pytestmark = pytest.mark.timeout(900)


def arguments(*words: object) -> ClusterArguments:
    """What a job makes of its words."""
    parser = argparse.ArgumentParser()
    add_cluster_arguments(parser)
    return cluster_of(parser.parse_args(list(map(str, words))))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterArguments]:
    folder = tmp_path_factory.mktemp("secured")
    rules, account = folder / "plain_acl.yml", folder / "tools.yml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    account.write_text("accessKey: reports\nsecretKey: secret-1\n")
    file = write_tls_file(folder / "tls.properties")
    tls = (f"tls.config.file={file}", "tls.server.mode=enforcing")
    settings = ("flushDiskType=ASYNC_FLUSH", "tls.enable=true", "aclEnable=true")
    with name_server(folder, *tls) as address:
        with broker(folder, *settings, f"aclFile={rules}", *tls, namesrv=address) as running:
            running.wait_until_serving()
            found = arguments("-n", address, "--acl-config", account, "--tls-config", file)
            config = ProducerConfig(client=found.access.client_config(), timeout_s=60)
            with Producer(address, config=config) as producer:
                producer.send(Message("orders", b"first"))
            direct.read_written({**found.source_options(), "topic": "orders", "groupId": "g"})
            yield found


def test_rows_go_there_and_back(spark: Any, secured: ClusterArguments) -> None:
    options = {**secured.source_options(), "topic": "orders"}
    writer = spark.range(5).selectExpr("cast(id as string) as body").write.format("rocketmq")
    writer.mode("append").options(**options).save()
    rows = direct.read_rows({**options, "groupId": "g", "columns": "body"})
    assert sorted(row["body"] for row in rows) == [b"0", b"1", b"2", b"3", b"4", b"first"]


def test_who_may_not_is_told_so_at_once(secured: ClusterArguments) -> None:
    """A read that waited for better days would wait longer than the test may take."""
    options = {**secured.source_options(), "topic": "orders", "groupId": "g"}
    options["readTimeoutMs"] = "3600000"
    sure = direct.source_of(options)
    parts = sure.reader(sure.schema()).partitions()
    for changes, words in (
        ({"secretKey": "secret-2"}, "Check signature failed for accessKey=reports"),
        ({"accessKey": "nobody"}, "No acl config for nobody"),
        ({"groupId": "others"}, "permission for group:others: accessKey=reports needs SUB"),
    ):
        source = direct.source_of({**options, **changes})
        with pytest.raises(SparkSourceError, match=words):
            list(source.reader(source.schema()).read(parts[0]))


def test_who_does_not_trust_a_broker_is_told_so_at_once(
    secured: ClusterArguments, tmp_path: Path
) -> None:
    file = write_tls_file(tmp_path / "tls.properties", tls_client_trustCertPath=OTHER_AUTHORITY)
    options = {**secured.source_options(), "topic": "orders", "tlsConfigFile": file}
    with pytest.raises(SparkSourceError, match=r"TLS with 127\.0\.0\.1:\d+: .*CERTIFICATE"):
        direct.read_rows({**options, "readTimeoutMs": "3600000"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"secretKey": "secret-2"},
            "after 1 tries: .*Check signature failed for accessKey=reports",
        ),
        ({"accessKey": "nobody"}, "after 1 tries: .*No acl config for nobody"),
        ({"topic": "payments"}, "after 1 tries: .*topic:payments: accessKey=reports needs PUB"),
        ({"tlsConfigFile": "strangers"}, "after 1 tries: .*CERTIFICATE_VERIFY_FAILED"),
    ],
)
def test_write_that_is_refused_says_so_at_once(
    secured: ClusterArguments, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    """A write that was tried again would be tried for longer than the test may take."""
    file = write_tls_file(tmp_path / "strangers", tls_client_trustCertPath=OTHER_AUTHORITY)
    changes = {name: file if text == "strangers" else text for name, text in changes.items()}
    options = {**secured.source_options(), "topic": "orders", "sendTimeoutMs": "3600000", **changes}
    with pytest.raises(SparkSourceError, match=words):
        direct.write_rows(options, [b"1", b"2"])


def test_write_by_whom_nobody_trusts_says_so_at_once(tmp_path: Path) -> None:
    """With TLS 1.3 the client takes a connection for open before the server refuses it."""
    asking = {"tls_server_need_client_auth": "require", "tls_server_trustCertPath": AUTHORITY}
    theirs = write_tls_file(tmp_path / "theirs", **asking)
    ours = write_tls_file(tmp_path / "ours")
    settings = (f"tls.config.file={theirs}", "tls.server.mode=enforcing")
    with name_server(tmp_path, *settings) as address:
        options = {"nameServer": address, "topic": "orders", "tls": True, "tlsConfigFile": ours}
        with pytest.raises(SparkSourceError, match="no name server answers.*CERTIFICATE_REQUIRED"):
            direct.write_rows({**options, "sendTimeoutMs": "3600000"}, [b"1"])


def test_slow_write_does_not_wait_for_its_turn_to_fail(secured: ClusterArguments) -> None:
    """At a row a second, the end of the batch would be hours away."""
    options = {**secured.source_options(), "topic": "orders", "secretKey": "secret-2"}
    rows = [b"x"] * 10_000
    with pytest.raises(SparkSourceError, match="Check signature failed"):
        direct.write_rows({**options, "rowsPerSecond": 1}, rows)


def test_who_speaks_plainly_is_not_heard(secured: ClusterArguments) -> None:
    options = {**secured.source_options(), "topic": "orders", "readTimeoutMs": 300}
    plain = {name: text for name, text in options.items() if not name.startswith("tls")}
    with pytest.raises(SparkSourceError, match="route of topic orders"):
        direct.read_rows(plain)


def test_arguments_that_cannot_be_used_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEDGERMQ_ACCESS_KEY", "LEDGERMQ_SECRET_KEY", "LEDGERMQ_TLS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    half = tmp_path / "half.yml"
    half.write_text("accessKey: me\n")
    for file in (half, tmp_path / "none.yml"):
        with pytest.raises(OptionError, match="--acl-config is .*; allowed: a YAML file with acc"):
            arguments("-n", "a:1", "--acl-config", file)
    assert arguments("-n", "a:1").source_options() == {"nameServer": "a:1"}
    with pytest.raises(OptionError, match="--name-server is 'a'; allowed: host:port"):
        arguments("-n", "a").open()
    monkeypatch.setenv("LEDGERMQ_ACCESS_KEY", "me")
    with pytest.raises(OptionError, match="together with LEDGERMQ_SECRET_KEY"):
        arguments("-n", "a:1")
    monkeypatch.setenv("LEDGERMQ_SECRET_KEY", "hidden")
    found = arguments("-n", "a:1")
    assert found.source_options()["secretKey"] == "hidden"
    assert "hidden" not in repr(found)
