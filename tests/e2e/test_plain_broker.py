"""A broker without a ledger, as a user runs it: sends, kills, restarts, what it finds again."""

from __future__ import annotations

import os
from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram, run_ledgermq
from tests.waiting import wait_until

WAIT_S = 90.0


def plain_broker(folder: Path, *settings: str) -> LiveProgram:
    [port] = free_ports(1, spread=(0, 1))
    words = [
        "broker", "--json", f"listenPort={port}", f"haListenPort={port + 1}",
        "brokerIP1=127.0.0.1", "brokerName=plain", f"storePathRootDir={folder / 'store'}",
        "enableDLegerCommitLog=false", *SMALL_STORE, *settings,
    ]  # fmt: skip
    return LiveProgram(words, folder / "broker.log")


def connected(program: LiveProgram) -> WireClient:
    """A connection to the program, once it serves; on a busy machine each step takes its time."""
    return WireClient(program.wait_until_serving(WAIT_S).address, timeout_s=WAIT_S)


def bodies(client: WireClient, topic: str, queue_id: int) -> list[bytes]:
    records = client.read_queue(topic, queue_id)
    assert [record.queue_offset for record in records] == list(range(len(records)))
    return [record.body for record in records]


def commit_offset(client: WireClient, group: str, topic: str, offset: int) -> None:
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset),
    }  # fmt: skip
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == 0


def committed_offset(client: WireClient, group: str, topic: str) -> str | None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, fields)
    return (answer.ext_fields or {}).get("offset")


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    for round_number, settings in enumerate(((), ("flushDiskType=ASYNC_FLUSH",))):
        with plain_broker(tmp_path, *settings) as program:
            with connected(program) as client:
                for queue_id in sent:
                    assert bodies(client, "T", queue_id) == sent[queue_id]
                for number in range(40):
                    body = b"%d-%d" % (round_number, number) * 1000
                    assert client.send("T", number % 2, body).code == 0
                    sent[number % 2].append(body)
            program.kill()
    with plain_broker(tmp_path) as program:
        with connected(program) as client:
            for queue_id in sent:
                assert bodies(client, "T", queue_id) == sent[queue_id]
    assert sorted(os.listdir(tmp_path / "store/commitlog"))[0] == f"{0:020d}"
    assert not (tmp_path / "store/dledger-n0").exists()


def test_a_stop_and_a_start_keep_offsets_and_delayed_messages(tmp_path: Path) -> None:
    delayed = {"properties": "DELAY\x013"}
    levels = "messageDelayLevel=1h 2h 1s"
    with plain_broker(tmp_path, levels) as program:
        with connected(program) as client:
            assert client.send("T", 0, b"at once").code == 0
            commit_offset(client, "g", "T", 1)
            assert client.send("D", 0, b"later", **delayed).code == 0
        assert program.stop() == 0
    assert not (tmp_path / "store/abort").exists()
    with plain_broker(tmp_path, levels) as program:
        with connected(program) as client:
            assert committed_offset(client, "g", "T") == "1"
            wait_until(
                lambda: bodies(client, "D", 0), what="the delayed message", deadline_s=WAIT_S
            )
            assert bodies(client, "D", 0) == [b"later"]


def test_a_damaged_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with plain_broker(tmp_path) as program:
        with connected(program) as client:
            places = [
                client.pull("T", 0, number)[0].physical_offset
                for number in range(20)
                if client.send("T", 0, b"x" * 1000).code == 0
            ]
    path = tmp_path / "store/commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[places[7] + 500] ^= 1
    path.write_bytes(content)
    words = ("listenPort=0", f"storePathRootDir={tmp_path / 'store'}", *SMALL_STORE)
    ended = run_ledgermq("broker", "--json", "brokerIP1=127.0.0.1", *words)
    assert ended.returncode != 0
    assert f"is damaged at offset {places[7]}" in ended.stdout + ended.stderr
    assert path.read_bytes() == content
