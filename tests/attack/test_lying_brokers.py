"""Commands that ask a name server and a broker which lie: names that act on a terminal, figures
that are none, numbers beyond 64 bits, bodies without end. Each ends with what can be shown, or with
a clear error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ledgermq.cli.main import main
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from tests.attack.lying_broker import (
    ACTING,
    Lie,
    LyingBroker,
    in_names,
    refusing,
    with_figures,
    with_numbers,
    with_records,
)
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import broker, name_server
from tests.waiting import wait_until

NAMES: Final = ("Orders", "readers", "broker-a", "DefaultCluster")
_ACTS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
COMMANDS: Final = (
    "topics", "topics show Orders", "groups", "groups show readers", "lag readers",
    "dlq list readers", "dlq show readers u1", "top --rounds 1", "send -t Orders hello",
    "admin clusterList", "admin topicRoute -t Orders", "admin topicStatus -t Orders",
    "admin consumerProgress -g readers", "admin brokerStatus -b @", "admin getBrokerConfig -b @",
    "admin queryMsgByUniqueKey -t Orders -i u1", "admin printMsg -t Orders",
    "admin exportMetrics -c DefaultCluster -f FOLDER", "doctor -n @",
)  # fmt: skip


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingBroker]:
    """Before true ones with a topic, a group and a dead letter."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with name_server(folder) as names, broker(folder, namesrv=names) as program:
        address = program.wait_until_serving().address
        with WireClient(address) as client:
            keys = "RETRY_TOPIC\x01Orders\x02UNIQ_KEY\x01u1"
            for topic in ("Orders", "%DLQ%readers"):
                given = send_fields(topic, 0, properties=keys)
                assert client.ask(RequestCode.SEND_MESSAGE.value, given, b"body").code == 0
            stand = {"consumerGroup": "readers", "topic": "Orders", "queueId": "0"}
            stand["commitOffset"] = "1"
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, stand).code == 0
        with WireClient(names) as client:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC.value
            for topic in ("Orders", "%DLQ%readers"):
                wait_until(
                    lambda name=topic: client.ask(code, {"topic": name}).code == 0,
                    what=f"the route of {topic}",
                )
        with LyingBroker(names, address) as lying:
            yield lying


def run(liar: LyingBroker, command: str, folder: Path) -> int:
    words = command.replace("@", liar.address).replace("FOLDER", str(folder)).split()
    if "-n" not in words:
        place = 2 if words[0] == "admin" else 1
        words[place:place] = ["-n", liar.address]
    return main(words)


def deep(answer: RemotingCommand, code: int) -> None:
    if answer.body.startswith(b"{"):
        answer.body = b'{"table":' * 200_000


def records_of_other_times(number: int) -> dict[str, object]:
    return {
        "born_timestamp": 2**63 - 1,
        "store_timestamp": 2**62,
        "reconsume_times": -(2**31),
        "body": ACTING.encode() * 3,
        "properties": f"UNIQ_KEY\x01u1\x02TAGS\x01{ACTING}\x02{ACTING}\x01{ACTING}".encode(),
    }


TELL_NAMES, UNDO_NAMES = in_names(*NAMES)
LIES: Final[dict[str, Lie]] = {
    "names that act": TELL_NAMES,
    "reasons that act": refusing,
    "figures that act": with_figures(ACTING),
    "figures beyond 64 bits": with_figures("9" * 5000),
    "figures that are no number": with_figures("nan"),
    "numbers beyond 64 bits": with_numbers("9" * 40),
    "numbers of 64 bits": with_numbers(str(2**63 - 1)),
    "the least number": with_numbers(str(-(2**63))),
    "messages of other times": with_records(records_of_other_times),
    "bodies without end": deep,
}


@pytest.mark.parametrize("name", LIES)
def test_each_command_shows_it_safely_or_fails(
    liar: LyingBroker, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    liar.lie, liar.undo = LIES[name], UNDO_NAMES
    for command in COMMANDS:
        code = run(liar, command, tmp_path)
        told = capsys.readouterr()
        shown = told.out + told.err
        assert code in (0, 1), command
        assert not _ACTS.search(shown), (command, shown[-2000:])
        assert "Traceback" not in shown, (command, shown[-2000:])
        assert code == 0 or told.err.startswith("ledgermq: ") or "doctor" in command, command


def test_the_liar_tells_the_truth_until_then(
    liar: LyingBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that what is safe above is the commands' merit."""
    liar.lie, liar.undo = None, bytes
    # What the doctor finds is this machine's, too; and a key is found a moment after its message.
    for command in COMMANDS[:-1]:
        wait_until(lambda words=command: run(liar, words, tmp_path) == 0, what=command)
    capsys.readouterr()
    liar.lie, liar.undo = TELL_NAMES, UNDO_NAMES
    assert run(liar, "topics --json", tmp_path) == 0
    assert "\\u001b]0;owned" in capsys.readouterr().out
