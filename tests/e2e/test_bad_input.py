"""What no client should send, against a real broker.

Every case is answered clearly or ends its own connection, with one line in the log at most. All
the while another connection sends and reads valid messages; in the end each of them is readable in
its place, and the store is good.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.logs.repeats import WRITTEN_MAX
from ledgermq.protocol.codes import RequestCode
from tests.e2e.bad_frames import (
    CLOSING,
    COMMIT,
    CREATE_TOPIC,
    HEART_BEAT,
    LEDGER,
    MAX_OFFSET,
    MESSAGE_BYTES_MAX,
    PULL,
    REFUSED,
    SEND,
    TOPIC,
    damaged,
    hello,
    recorded,
    send,
    topic_fields,
)
from tests.e2e.wire_client import WireClient, frame, pull_fields, request, send_fields
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram, broker, run_ledgermq
from tests.waiting import wait_until

STEADY = "Steady"
SEED = 20240607
BROKER_CASES = 1500
LEDGER_CASES = 500
# Far above what the broker needs, far below what a believed length would cost.
RESIDENT_KIB_MAX = 300 * 1024


class SteadyTraffic:
    """One connection that sends a message and reads it, again and again, until it is stopped."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_over = threading.Event()
        self.count = 0
        self.failure = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def body(number: int) -> bytes:
        return b"steady %d " % number + b"." * (number % 300)

    def _run(self) -> None:
        try:
            with WireClient(self._address) as client:
                while not self._is_over.wait(0.01):
                    self._send_one(client)
        except Exception as error:
            self.failure = repr(error)

    def _send_one(self, client: WireClient) -> None:
        answer = client.send(STEADY, 0, self.body(self.count))
        assert answer.code == 0, answer
        assert answer.ext_fields is not None
        assert answer.ext_fields["queueOffset"] == str(self.count), answer
        found = client.pull(STEADY, 0, self.count)
        assert [record.body for record in found] == [self.body(self.count)]
        self.count += 1

    def wait_for_more(self) -> None:
        """Waits until messages have passed that were sent after this call."""
        wanted = self.count + 2
        wait_until(lambda: self.failure or self.count >= wanted, what="steady messages")
        assert not self.failure, self.failure

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(20)
        assert not self.failure, self.failure


class Probed(NamedTuple):
    """The broker under test, and the traffic that must not notice."""

    program: LiveProgram
    traffic: SteadyTraffic

    @property
    def address(self) -> str:
        return self.program.address

    @property
    def ledger_address(self) -> str:
        return str(self.program.status["dledger"])

    def log_lines(self) -> list[str]:
        return lines_of(self.program)


def lines_of(program: LiveProgram) -> list[str]:
    """What its log tells; what came again is counted once a minute, whatever is done then."""
    return [
        line for line in program.log_text().splitlines() if " more within a minute: " not in line
    ]


@pytest.fixture(scope="module")
def broker_and_traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    """A broker with steady traffic; afterwards all of it must be there, in order."""
    folder = tmp_path_factory.mktemp("bad-input")
    settings = (f"maxMessageSize={MESSAGE_BYTES_MAX}", "autoCreateTopicEnable=false")
    with broker(folder, *settings) as program:
        program.wait_until_serving()
        with WireClient(program.address) as client:
            for topic in (STEADY, TOPIC):
                create_topic(client, topic)
        traffic = SteadyTraffic(program.address)
        yield Probed(program, traffic)
        traffic.stop()
        with WireClient(program.address) as client:
            records = client.read_queue(STEADY, 0)
        assert [record.body for record in records] == [
            traffic.body(number) for number in range(traffic.count)
        ]
        assert program.stop() == 0
    verified = run_ledgermq("log", "verify", folder / "broker-a")
    assert verified.returncode == 0, verified.stdout
    assert "Traceback" not in program.log_text()
    assert "Unhandled" not in program.log_text()


@pytest.fixture
def probed(broker_and_traffic: Probed) -> Iterator[Probed]:
    """Valid traffic goes on after each test."""
    yield broker_and_traffic
    broker_and_traffic.traffic.wait_for_more()


def create_topic(client: WireClient, topic: str) -> None:
    answer = client.ask(CREATE_TOPIC, topic_fields(topic))
    assert answer.code == 0, answer


def max_offsets(client: WireClient) -> list[str]:
    """Where the queues of the topic end: what a refusal must not change."""
    found = []
    for queue_id in range(4):
        answer = client.ask(MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)})
        assert answer.code == 0 and answer.ext_fields is not None
        found.append(answer.ext_fields["offset"])
    return found


@pytest.mark.parametrize("case", CLOSING)
def test_bytes_that_are_no_command_close_the_connection(probed: Probed, case: str) -> None:
    before = probed.log_lines()
    with WireClient(probed.address) as client:
        client.write(CLOSING[case])
        assert client.read() is None
    assert len(probed.log_lines()) - len(before) <= 1, probed.log_lines()[len(before) :]


def test_the_first_of_them_are_told_with_address_and_reason(probed: Probed) -> None:
    for _ in range(WRITTEN_MAX):
        with WireClient(probed.address) as client:
            client.write(CLOSING["greatest length"])
            assert client.read() is None
    told = [line for line in probed.log_lines() if "bad bytes: " in line]
    assert len(told) >= WRITTEN_MAX
    assert all(re.search(r"closing 127\.0\.0\.1:\d+: bad bytes: \w", line) for line in told)
    assert "allowed: " in told[0]


@pytest.mark.parametrize("case", REFUSED)
def test_a_command_that_cannot_be_carried_out_says_why(probed: Probed, case: str) -> None:
    data, code, words = REFUSED[case]
    before = probed.log_lines()
    with WireClient(probed.address) as client:
        offsets = max_offsets(client)
        client.write(data)
        answer = client.read()
        assert answer is not None and answer.opaque == 1
        remark = answer.remark or ""
        assert (answer.code, [word for word in words if word not in remark]) == (code, []), remark
        assert len(remark) <= 1024
        assert max_offsets(client) == offsets
    assert len(probed.log_lines()) - len(before) <= 1, probed.log_lines()[len(before) :]


def test_a_negative_queue_id_leaves_the_choice_to_the_broker(probed: Probed) -> None:
    with WireClient(probed.address) as client:
        chosen = set()
        for _ in range(30):
            answer = client.send(TOPIC, -1 - len(chosen), b"anywhere")
            assert answer.code == 0 and answer.ext_fields is not None
            chosen.add(answer.ext_fields["queueId"])
    assert chosen <= set("0123") and len(chosen) > 1


@pytest.mark.parametrize("count", [2**31 - 1, 0, -(2**31)])
def test_a_pull_may_ask_for_any_number_of_messages(probed: Probed, count: int) -> None:
    with WireClient(probed.address) as client:
        assert client.send(TOPIC, 1, b"one").code == 0
        fields = pull_fields(TOPIC, 1, 0, maxMsgNums=str(count))
        answer = client.ask(PULL, fields)
    assert (answer.code, answer.body != b"") == (0, True)


def test_an_offset_behind_the_end_is_stored_and_harms_nobody(probed: Probed) -> None:
    """As in Java: the group is then told that its offset moved when it pulls."""
    with WireClient(probed.address) as client:
        fields = {"consumerGroup": "ahead", "topic": TOPIC, "queueId": "2"}
        answer = client.ask(COMMIT, {**fields, "commitOffset": str(2**63 - 1)})
        assert answer.code == 0
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, fields)
        assert answer.ext_fields == {"offset": str(2**63 - 1)}
        assert client.ask(PULL, pull_fields(TOPIC, 2, 2**63 - 1)).code == 21


def test_one_way_garbage_gets_no_answer_and_the_next_request_does(probed: Probed) -> None:
    with WireClient(probed.address) as client:
        for data in (
            request(9999, flag=2),
            request(SEND, flag=2),
            request(SEND, send_fields("../x"), b"x", flag=2),
            request(PULL, pull_fields(TOPIC, 99, 0), flag=2),
            request(HEART_BEAT, None, b"garbage", flag=2),
        ):
            client.write(data)
        client.write(request(MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}, opaque=5))
        answer = client.read()
    assert answer is not None
    assert (answer.opaque, answer.code) == (5, 0)


def test_an_answer_that_nobody_asked_for_is_dropped(probed: Probed) -> None:
    with WireClient(probed.address) as client:
        for opaque in (-1, 0, 12345):
            client.write(request(0, {"queueId": "1"}, opaque=opaque, flag=1))
        assert client.ask(MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).code == 0


def test_both_requests_with_one_opaque_are_answered(probed: Probed) -> None:
    with WireClient(probed.address) as client:
        end = int(max_offsets(client)[3])
        waits = pull_fields(TOPIC, 3, end, sysFlag="6", suspendTimeoutMillis="15000")
        client.write(request(PULL, waits, opaque=77))
        client.write(request(MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}, opaque=77))
        first = client.read()
        assert first is not None and (first.code, first.opaque) == (0, 77) and not first.body
        client.write(request(SEND, send_fields(TOPIC, 3), b"awaited", opaque=77))
        answers = [client.read(), client.read()]
    assert [answer is not None and (answer.code, answer.opaque) for answer in answers] == [
        (0, 77),
        (0, 77),
    ]
    assert sorted(answer is not None and b"awaited" in answer.body for answer in answers) == [
        False,
        True,
    ]


def test_an_unfinished_frame_ends_without_a_line_in_the_log(probed: Probed) -> None:
    whole = send(body=b"never whole")
    before = probed.log_lines()
    with WireClient(probed.address) as watching:
        offsets = max_offsets(watching)
        for cut in (1, 3, 4, 5, 8, len(whole) // 2, len(whole) - 1):
            with WireClient(probed.address) as client:
                client.write(whole[:cut])
                client.end_writing()
                assert client.read() is None
        assert max_offsets(watching) == offsets
    assert probed.log_lines() == before


def test_a_command_is_read_however_it_is_cut(probed: Probed) -> None:
    with WireClient(probed.address) as client:
        for byte in request(MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}):
            client.write(bytes([byte]))
        answer = client.read()
    assert answer is not None and answer.code == 0


def test_frames_that_promise_much_cost_no_memory(probed: Probed) -> None:
    clients = [WireClient(probed.address) for _ in range(40)]
    try:
        for client in clients:
            client.write(frame(b'{"code":10', header_length=10, length=16_777_212))
        status = Path(f"/proc/{probed.program.pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        assert int(resident.split()[1]) < RESIDENT_KIB_MAX
    finally:
        for client in clients:
            client.__exit__(None, None, None)


def outlive(probed: Probed, address: str, frames: list[bytes], count: int) -> None:
    """Sends damaged frames, a connection each, and waits for its end each time."""
    rng = random.Random(SEED)
    before = probed.log_lines()
    for number in range(count):
        data = damaged(rng, frames)
        with WireClient(address) as client:
            client.write(data)
            client.end_writing()
            try:
                while client.read() is not None:
                    pass
            except TimeoutError:
                pytest.fail(f"seed {SEED}, case {number}: {data!r} is neither answered nor closed")
    lines = probed.log_lines()[len(before) :]
    assert len(lines) <= count
    assert not any("Traceback" in line for line in lines)


def test_damaged_frames_of_real_clients_are_outlived(probed: Probed) -> None:
    frames = recorded(
        "java-4.9.3-json", "java-4.9.3-binary", "java-4.9.3-code-10", "java-5.3.3-json",
        "go", "cpp", "node",
    )  # fmt: skip
    assert len(frames) > 100
    outlive(probed, probed.address, frames, BROKER_CASES)


def test_damaged_frames_of_real_members_are_outlived(probed: Probed) -> None:
    frames = recorded("dledger-0.2.3", "dledger-0.3.1.2", "dledger-0.3.1.2-batch")
    assert len(frames) > 30
    outlive(probed, probed.ledger_address, frames, LEDGER_CASES)


def test_random_bytes_are_outlived_on_both_ports(probed: Probed) -> None:
    rng = random.Random(SEED)
    for address in (probed.address, probed.ledger_address):
        for _ in range(50):
            with WireClient(address) as client:
                client.write(rng.randbytes(rng.randrange(1, 3000)))
                client.end_writing()
                assert client.read() is None


@pytest.mark.parametrize("case", LEDGER)
def test_the_ledger_port_refuses_strangers(probed: Probed, case: str) -> None:
    data, code, words = LEDGER[case]
    before = probed.log_lines()
    with WireClient(probed.ledger_address) as client:
        client.write(data)
        answer = client.read()
        if code is None:
            assert answer is None
        else:
            assert answer is not None
            assert answer.code == code, answer
            assert words in (answer.remark or "") + answer.body.decode()
    assert len(probed.log_lines()) - len(before) <= 1, probed.log_lines()[len(before) :]
    assert probed.program.status["role"] == "LEADER"


def test_frames_of_a_peer_that_make_no_sense_change_nothing(tmp_path: Path) -> None:
    """A member that is alone of three takes no message, whatever comes in the name of another."""
    port, *ledger_ports = free_ports(4)
    peers = ";".join(f"n{i}-127.0.0.1:{ledger_ports[i]}" for i in range(3))
    words = [
        "broker", "--json", f"listenPort={port}", "brokerIP1=127.0.0.1", "brokerName=broker-a",
        f"storePathRootDir={tmp_path / 'n0'}", "enableDLegerCommitLog=true",
        "dLegerGroup=broker-a", f"dLegerPeers={peers}", "dLegerSelfId=n0", *SMALL_STORE,
    ]  # fmt: skip
    rng = random.Random(SEED)
    with LiveProgram(words, tmp_path / "broker.log") as program:
        wait_until(lambda: "dledger" in program.status, what="a member")
        for code in sorted(set(map(int, BinaryCode)) - {int(BinaryCode.HELLO)}):
            for body in (b"", b"\xff" * 21, rng.randbytes(60), rng.randbytes(5000)):
                before = len(lines_of(program))
                with WireClient(program.status["dledger"]) as client:
                    client.write(hello())
                    answer = client.read()
                    assert answer is not None and answer.code == 0, answer
                    client.write(request(code, None, body, flag=2))
                    client.end_writing()
                    while client.read() is not None:
                        pass
                lines = lines_of(program)[before:]
                assert len(lines) <= 1, lines
        with WireClient(program.address) as client:
            answer = client.send("T", 0, b"to nobody")
            assert answer.code != 0 and answer.remark
        assert program.status["role"] != "LEADER"
        assert program.stop() == 0
    assert "Traceback" not in program.log_text()
