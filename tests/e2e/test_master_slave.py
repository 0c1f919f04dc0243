"""A master and its slave without a ledger: what is copied, what senders hear, who serves when."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials
from tests.certificate_files import AUTHORITY, NODE, NODE_KEY, write_tls_file
from tests.e2e.plain_pair import PlainBroker, brokers_in_route, wait_until_equal
from tests.e2e.wire_client import WireClient
from tests.processes import name_server
from tests.waiting import wait_until

OK, NOT_AVAILABLE, TIMEOUT, REFUSED = 0, 11, 12, 14
GROUP = {"consumerGroup": "readers", "topic": "Copied", "queueId": "0"}


def test_consumers_go_on_at_the_slave_when_the_master_is_killed(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        master = PlainBroker(tmp_path, namesrv, "ASYNC_MASTER")
        slave = PlainBroker(tmp_path, namesrv, "SLAVE")
        with master.start() as running_master, slave.start() as running_slave:
            master.wait_for_code(OK, "the master")
            bodies = [b"%03d" % number * 200 for number in range(100)]
            with master.client() as client:
                for body in bodies[:60]:
                    assert client.send("Copied", 0, body).code == OK
            wait_until(slave.log_files, what="a slave that copies", deadline_s=60.0)
            # It may stand in the middle of a record: that is cut at its start, and sent again.
            running_slave.kill()
            with master.client() as client:
                for body in bodies[60:]:
                    assert client.send("Copied", 0, body).code == OK
                fields = GROUP | {"commitOffset": "40"}
                assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == OK
            with slave.start():
                wait_until_equal(master, slave)
                with slave.client() as client:

                    def committed() -> dict[str, str] | None:
                        code = RequestCode.QUERY_CONSUMER_OFFSET.value
                        return client.ask(code, GROUP).ext_fields

                    wait_until(
                        lambda: committed() == {"offset": "40"},
                        what="the master's offsets",
                        deadline_s=60.0,
                    )
                wait_until(
                    lambda: (
                        brokers_in_route(namesrv, "Copied") == {0: master.address, 1: slave.address}
                    ),
                    what="both in the route",
                )
                running_master.kill()
                with slave.client() as client:
                    found = [record.body for record in client.read_queue("Copied", 0, 40)]
                    assert found == bodies[40:]
                    assert client.send("Copied", 0, b"lost").code == REFUSED
                    fields = GROUP | {"commitOffset": "90"}
                    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == OK
                    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, GROUP)
                    assert answer.ext_fields == {"offset": "90"}
                wait_until(
                    lambda: brokers_in_route(namesrv, "Copied") == {1: slave.address},
                    what="the slave alone in the route",
                )
                # The master comes back, and the slave follows it on.
                with master.start():
                    master.wait_for_code(OK, "the master again")
                    wait_until_equal(master, slave)


def test_a_sync_master_answers_as_its_slave_does(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        master = PlainBroker(tmp_path, namesrv, "SYNC_MASTER", "slaveTimeout=300")
        slave = PlainBroker(tmp_path, namesrv, "SLAVE")
        with master.start() as running_master:
            running_master.wait_until_serving()
            with master.client() as client:
                answer = client.send("Probe", 0, b"alone")
                assert answer.code == NOT_AVAILABLE
                assert answer.ext_fields is not None and answer.ext_fields["queueOffset"] == "0"
                # This one does not wait for slaves, so that there is none is nothing to it.
                assert client.send("Probe", 0, b"x", properties="WAIT\x01false").code == OK
            with slave.start() as running_slave:
                master.wait_for_code(OK, "a slave that answers")
                # It hangs, or the network to it does: its connection stays open.
                os.kill(running_slave.pid, signal.SIGSTOP)
                try:
                    master.wait_for_code(TIMEOUT, "a slave too slow")
                finally:
                    os.kill(running_slave.pid, signal.SIGCONT)
                master.wait_for_code(OK, "a slave that answers again")
                wait_until_equal(master, slave)
            master.wait_for_code(NOT_AVAILABLE, "no slave")


def test_slave_copies_log_and_tables_by_tls_and_the_groups_secret(tmp_path: Path) -> None:
    """The master asks clients for accounts, and the slave has none."""
    secret, rules = tmp_path / "group.secret", tmp_path / "plain_acl.yml"
    secret.write_text("s" * 40)
    rules.write_text("accounts:\n- {accessKey: root-app, secretKey: secret-1, admin: true}\n")
    for path in (secret, rules):
        path.chmod(0o600)
    certificates = write_tls_file(
        tmp_path / "tls.properties", tls_server_need_client_auth="require",
        tls_server_trustCertPath=AUTHORITY, tls_client_certPath=NODE, tls_client_keyPath=NODE_KEY,
    )  # fmt: skip
    settings = (f"dLegerGroupSecretFile={secret}", f"tls.ledger.config.file={certificates}")
    who = Credentials(access_key="root-app", secret_key="secret-1")
    with name_server(tmp_path) as namesrv:
        guarded = (*settings, "aclEnable=true", f"aclFile={rules}")
        master = PlainBroker(tmp_path, namesrv, "SYNC_MASTER", *guarded)
        slave = PlainBroker(tmp_path, namesrv, "SLAVE", *settings)
        with master.start() as running, slave.start():
            running.wait_until_serving()
            with WireClient(master.address, who=who) as client:

                def is_copied() -> bool:
                    return client.send("Copied", 0, b"by TLS").code == OK

                wait_until(is_copied, what="a slave that copies", deadline_s=60.0)
                version = client.ask(RequestCode.GET_ALL_TOPIC_CONFIG.value).body[:60]
            with slave.client() as client:
                wait_until(
                    lambda: client.ask(RequestCode.GET_ALL_TOPIC_CONFIG.value).body[:60] == version,
                    what="the master's tables",
                    deadline_s=60.0,
                )


def test_a_slave_that_holds_more_than_its_master_is_refused(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        master = PlainBroker(tmp_path, namesrv, "ASYNC_MASTER")
        slave = PlainBroker(tmp_path, namesrv, "SLAVE")
        with master.start(), slave.start():
            master.wait_for_code(OK, "the master")
            wait_until_equal(master, slave)
        kept = slave.log_files()
        fresh = PlainBroker(tmp_path / "fresh", namesrv, "ASYNC_MASTER")
        (tmp_path / "fresh").mkdir()
        with fresh.start() as running_master, slave.start() as running_slave:
            running_master.wait_until_serving()
            wait_until(
                lambda: "behind the end of this master's" in running_master.log_text(),
                what="the reason in the master's log",
                deadline_s=60.0,
            )
            assert running_slave.is_running
        assert slave.log_files() == kept
        # By hand it becomes the master, and goes on where the former one ended.
        promoted = PlainBroker(tmp_path, namesrv, "ASYNC_MASTER", store=slave.store)
        with promoted.start() as running:
            running.wait_until_serving()
            with promoted.client() as client:
                sent = client.send("Probe", 0, b"next").ext_fields
                records = client.read_queue("Probe", 0)
        assert sent is not None and sent["queueOffset"] == str(len(records) - 1)
        assert [record.body for record in records] == [b"probe"] * (len(records) - 1) + [b"next"]


def test_start_says_that_a_secret_alone_does_not_encrypt(tmp_path: Path) -> None:
    secret = tmp_path / "group.secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    settings = (f"dLegerGroupSecretFile={secret}", "bindAddress=0.0.0.0")
    with PlainBroker(tmp_path, "127.0.0.1:1", "ASYNC_MASTER", *settings).start() as running:
        log = running.wait_until_serving().log_text()
    assert log.count("dLegerGroupSecretFile without tls.ledger.config.file") == 1
