"""`ledgermq doctor`: what would stop a broker from working here is found before it starts."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from ledgermq import kernel
from ledgermq.cli import doctor
from ledgermq.cli.main import main
from ledgermq.dledger.birth import Birth
from ledgermq.dledger.storage import HardState
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.vote_file import VoteFile
from tests.certificate_files import EXPIRED, write_tls_file
from tests.unit.cli.stores import SEGMENT_BYTES, data_files, ledger, make_store

SMALL = ("mappedFileSizeCommitLog=65536", "mappedFileSizeDLedgerIndex=32768", "maxMessageSize=1024")


@pytest.fixture(autouse=True)
def free_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket is opened here; the ports of a real machine are a matter of tests/e2e."""
    monkeypatch.setattr(doctor, "_check_ports", lambda config: [])
    monkeypatch.setattr(doctor, "_check_members", lambda config: [])
    monkeypatch.setattr(doctor, "OUTGOING_PORTS", Path("not there"))


def findings(
    capsys: pytest.CaptureFixture[str], root: Path, *settings: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and the findings by their check."""
    words = ["doctor", "--json", f"storePathRootDir={root}", "brokerIP1=127.0.0.1", *SMALL]
    code = main([*words, *settings])
    return code, {found["check"]: found for found in json.loads(capsys.readouterr().out)}


def test_an_empty_directory_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not even have to be there, and the look at it leaves nothing behind."""
    code, found = findings(capsys, tmp_path / "not" / "yet")
    assert code == 0
    assert {name: one["verdict"] for name, one in found.items()} == {
        "configuration": "good",
        "kernel": found["kernel"]["verdict"],
        "address": "good",
        "disk space": found["disk space"]["verdict"],
        "file system": found["file system"]["verdict"],
        "descriptors": found["descriptors"]["verdict"],
        "durable write": found["durable write"]["verdict"],
        "store": "good",
        "clock": "good",
        "name server": "warning",
    }
    assert "starts anew" in found["store"]["text"]
    assert list(tmp_path.iterdir()) == []


def test_store_of_another_member_list_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the start that it would end; and nothing is written."""
    three = "n0-127.0.0.1:40911;n1-127.0.0.1:40921;n2-127.0.0.1:40931"
    keys = ("enableDLegerCommitLog=true", "dLegerGroup=g", "dLegerSelfId=n0")
    birth = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)
    votes = VoteFile(RealFileSystem(), str(tmp_path / "dledger-n0"), "n0", group="g")
    votes.save(HardState(4, "n1", birth))
    files = {path.name: path.read_bytes() for path in (tmp_path / "dledger-n0").iterdir()}
    for peers, verdict in ((three, "good"), (f"{three};n3-127.0.0.1:40941", "failed")):
        _, found = findings(capsys, tmp_path, *keys, f"dLegerPeers={peers}")
        assert found["store"]["verdict"] == verdict, found["store"]
    assert "n0, n1, n2" in found["store"]["text"] and "dLegerPeers" in found["store"]["text"]
    assert {p.name: p.read_bytes() for p in (tmp_path / "dledger-n0").iterdir()} == files


@pytest.mark.parametrize(("hard", "verdict"), [(1024, "warning"), (4096, "good"), (-1, "good")])
def test_few_descriptors_are_a_warning(
    hard: int,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, hard))
    _, found = findings(capsys, tmp_path)
    assert found["descriptors"]["verdict"] == verdict


def test_a_store_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_store(tmp_path / "store")
    (ledger(root) / "currterm").write_text("currTerm=7\nvoteLeader=n0\n")
    code, found = findings(capsys, root)
    assert code == 0
    assert found["store"]["verdict"] == "good"
    assert "term 7, committed 60" in found["store"]["text"]


def test_a_changed_segment_size_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_store(tmp_path / "store")
    code, found = findings(capsys, root, "mappedFileSizeCommitLog=131072")
    assert code == 1
    assert found["store"]["verdict"] == "failed"
    for word in (str(data_files(root)[0]), str(SEGMENT_BYTES), "131072", "mappedFileSizeCommitLog"):
        assert word in found["store"]["text"]


@pytest.mark.parametrize("text", [None, "", "currTerm=many\n"])
def test_an_unreadable_term_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    root = make_store(tmp_path / "store")
    if text is not None:
        (ledger(root) / "currterm").write_text(text)
    code, found = findings(capsys, root)
    assert code == 1
    assert "currterm" in found["store"]["text"]


def test_a_clock_that_was_set_back_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_store(tmp_path / "store")
    (ledger(root) / "currterm").write_text("currTerm=1\n")
    later = time.time() + 3600
    os.utime(data_files(root)[0], (later, later))
    code, found = findings(capsys, root)
    assert code == 1
    assert found["clock"]["verdict"] == "failed"
    assert "set back" in found["clock"]["text"]


def test_a_full_disk_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = (10 << 30, (10 << 30) - 100_000, 100_000)
    disk = type("Usage", (), dict(zip(("total", "used", "free"), usage, strict=True)))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: disk)
    code, found = findings(capsys, tmp_path)
    assert code == 1
    assert found["disk space"]["verdict"] == "failed"


def test_a_disk_beyond_its_share_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = type("Usage", (), {"total": 10 << 30, "used": 9 << 30, "free": 1 << 30})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: disk)
    code, found = findings(capsys, tmp_path)
    assert code == 0
    assert found["disk space"]["verdict"] == "warning"
    assert "diskMaxUsedSpaceRatio is 75" in found["disk space"]["text"]


def test_a_root_that_is_a_file_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "file"
    root.write_text("in the way")
    code, found = findings(capsys, root)
    assert code == 1
    assert found["durable write"]["verdict"] == "failed"
    assert str(root) in found["durable write"]["text"]


def test_an_address_that_is_none_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = findings(capsys, tmp_path, "brokerIP1=no such host")
    assert code == 1
    assert "brokerIP1 'no such host'" in found["address"]["text"]


def test_an_unknown_key_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = findings(capsys, tmp_path, "noSuchKey=1")
    assert code == 0
    assert found["configuration"]["verdict"] == "warning"
    assert "noSuchKey" in found["configuration"]["text"]


def test_findings_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", f"storePathRootDir={tmp_path}", "brokerIP1=127.0.0.1", *SMALL]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["good", "configuration"]
    assert len(lines) == 10


def test_an_uncompiled_kernel_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "describe", lambda: "compiled")
    assert findings(capsys, tmp_path)[1]["kernel"]["verdict"] == "good"
    monkeypatch.setattr(kernel, "describe", lambda: "pure Python (for a reason)")
    code, found = findings(capsys, tmp_path)
    assert code == 0
    assert found["kernel"]["verdict"] == "warning"
    assert "for a reason" in found["kernel"]["text"]


def test_accounts_and_certificates_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules, store = tmp_path / "plain_acl.yml", tmp_path / "store"
    rules.write_text("accounts: [{accessKey: orders-app, secretKey: secret-1}]")
    rules.chmod(0o600)
    good = write_tls_file(tmp_path / "good.properties")
    acl = ("aclEnable=true", f"aclFile={rules}")
    code, found = findings(capsys, store, *acl, f"tls.config.file={good}")
    assert code == 0
    assert found["accounts"]["text"] == f"1 in {rules}"
    assert found["certificate"]["text"] == "valid; plain connections are served, too"
    rules.chmod(0o644)
    expired = write_tls_file(tmp_path / "bad.properties", tls_server_certPath=EXPIRED)
    code, found = findings(capsys, store, *acl, f"tls.config.file={expired}")
    assert code == 1 and found["accounts"]["verdict"] == "warning"
    assert "certificate has expired" in found["certificate"]["text"]
    rules.write_text("accounts: [{accessKey: orders-app}]")
    code, found = findings(capsys, store, *acl)
    assert code == 1 and "secretKey is missing" in found["accounts"]["text"]
    assert "certificate" not in found


@pytest.mark.parametrize(
    ("reserved", "verdict"),
    [
        ("\n", "warning"),
        ("40912,40921-40931\n", "warning"),
        ("40911\n", "good"),
        ("8080,40900-40931\n", "good"),
    ],
)
def test_a_port_that_outgoing_connections_may_take_is_a_warning(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reserved: str,
    verdict: str,
) -> None:
    for name, text in (("OUTGOING_PORTS", "32768\t60999\n"), ("RESERVED_PORTS", reserved)):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(doctor, name, tmp_path / name)
    group = ("dLegerPeers=n0-127.0.0.1:40911", "dLegerSelfId=n0", "enableDLegerCommitLog=true")
    _, found = findings(capsys, tmp_path / "store", *group)
    assert found["outgoing ports"]["verdict"] == verdict
    assert ("dLegerPeers 40911" in found["outgoing ports"]["text"]) == (verdict == "warning")


@pytest.mark.parametrize(("role", "is_listened"), [("ASYNC_MASTER", True), ("SLAVE", False)])
def test_the_port_for_slaves_is_that_of_a_master(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    is_listened: bool,
) -> None:
    for name, text in (("OUTGOING_PORTS", "32768\t60999\n"), ("RESERVED_PORTS", "")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(doctor, name, tmp_path / name)
    plain = ("enableDLegerCommitLog=false", "haListenPort=40912", f"brokerRole={role}")
    _, found = findings(capsys, tmp_path / "store", *plain, "brokerId=1")
    assert ("haListenPort 40912" in found["outgoing ports"]["text"]) == is_listened


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_slave_tries_the_master_it_was_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_reached: bool,
) -> None:
    tried = []

    class Connection:
        def close(self) -> None:
            tried.append("closed")

    def connect(address: tuple[str, int], timeout_s: float) -> Connection:
        tried.append(address)
        if not is_reached:
            raise ConnectionRefusedError(111, "Connection refused")
        return Connection()

    monkeypatch.setattr(doctor.socket, "create_connection", connect)
    slave = ("brokerRole=SLAVE", "brokerId=1", "haMasterAddress=10.0.0.1:10912")
    code, found = findings(capsys, tmp_path / "store", *slave)
    assert code == 0
    assert found["master"]["verdict"] == ("good" if is_reached else "warning")
    assert tried == [("10.0.0.1", 10912), *(["closed"] if is_reached else [])]


def test_ports_of_members_beside_access_control_are_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules, secret = tmp_path / "plain_acl.yml", tmp_path / "group.secret"
    rules.write_text("accounts: [{accessKey: orders-app, secretKey: secret-1}]")
    keys = (
        "aclEnable=true",
        f"aclFile={rules}",
        "enableDLegerCommitLog=true",
        "dLegerSelfId=n0",
        "dLegerPeers=n0-10.255.255.1:40911",
    )
    code, found = findings(capsys, tmp_path / "store", *keys)
    assert code == 1 and found["group secret"]["verdict"] == "failed"
    assert "dLegerPeers" in found["group secret"]["text"]
    secret.write_text("s" * 40)
    secret.chmod(0o644)
    keys = (*keys, f"dLegerGroupSecretFile={secret}")
    code, found = findings(capsys, tmp_path / "store", *keys)
    assert code == 1 and "chmod 0600" in found["group secret"]["text"]
    secret.chmod(0o600)
    _, found = findings(capsys, tmp_path / "store", *keys)
    assert found["group secret"]["verdict"] == "good"
    _, found = findings(capsys, tmp_path / "store", *keys, "dLegerGroupSecretMode=accept")
    assert found["group secret"]["verdict"] == "warning"
    several = "dLegerPeers=n0-10.255.255.1:40911;n1-127.0.0.1:1"
    _, found = findings(capsys, tmp_path / "store", *keys, several)
    assert found["group secret"]["verdict"] == "warning"
    assert "without tls.ledger.config.file" in found["group secret"]["text"]
