"""What the stock Go, C++ and Node clients offer beside plain messages, each against one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.interop.builds import cpp_program, go_program, node_program
from tests.interop.closed import broker_settings, name_server_settings
from tests.interop.programs import Report, run
from tests.processes import LiveProgram, broker, name_server, run_ledgermq
from tests.waiting import wait_until

# Levels of one and two seconds; a failed message takes level 3 and those above.
SETTINGS = (
    "messageDelayLevel=1s 2s 1s 1s 1s",
    "transactionCheckInterval=1000",
    "transactionTimeOut=500",
    "enablePropertyFilter=true",
)
DEADLINE_SECONDS = 120.0
pytestmark = pytest.mark.timeout(400)
CLIENTS: Final[dict[str, Callable[[], list[str]]]] = {
    "go": partial(go_program, "features"),
    "cpp": partial(cpp_program, "features.py"),
    "node": partial(node_program, "features.js"),
}


@dataclass(frozen=True)
class Site:
    """A name server and a broker."""

    namesrv: str
    broker: LiveProgram
    folder: Path

    def play(self, client: str, feature: str) -> list[Report]:
        """Runs one feature on a topic of its own with one queue; returns what consumers were given.

        Events other than messages and their ends are refusals of the test.
        """
        topic = f"{client}_{feature}"
        made = run_ledgermq(
            "admin", "updateTopic", "-n", self.namesrv, "-b", self.broker.address,
            "-t", topic, "-r", 1, "-w", 1,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        wait_until(lambda: self._is_routed(topic), what=f"the route of {topic}")
        reports: list[Report] = []
        run(
            # Go keeps offsets of broadcasts below HOME.
            ["env", f"HOME={self.folder}", *CLIENTS[client](), feature, self.namesrv, topic,
             f"group_{topic}"],
            reports.append,
            log_path=self.folder / f"{topic}.log",
            deadline_seconds=DEADLINE_SECONDS,
        )  # fmt: skip
        assert not [report for report in reports if report["event"] == "refused"]
        return [report for report in reports if report["event"] == "message"]

    def _is_routed(self, topic: str) -> bool:
        """Tells whether the name server knows the topic: Go's client asks once, and ends."""
        asked = run_ledgermq("admin", "topicRoute", "-n", self.namesrv, "-t", topic)
        return asked.returncode == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("features")
    settings = (*SETTINGS, *broker_settings(folder))
    with name_server(folder, *name_server_settings(folder)) as namesrv:
        with broker(folder, *settings, namesrv=namesrv) as running:
            yield Site(namesrv, running.wait_until_serving(), folder)


def bodies(messages: list[Report]) -> list[str]:
    return [message["body"] for message in messages]


# A client that waited too long for an answer sends again, so a set is what can be promised.
@pytest.mark.parametrize("client", ["go", "cpp", "node"])
def test_tags_are_filtered(site: Site, client: str) -> None:
    assert set(bodies(site.play(client, "tags"))) == {"red", "blue"}


@pytest.mark.parametrize("client", ["go"])
def test_expressions_are_evaluated(site: Site, client: str) -> None:
    assert set(bodies(site.play(client, "sql"))) == {"w6", "w7"}


@pytest.mark.parametrize("client", ["go", "cpp", "node"])
def test_every_member_is_given_a_broadcast(site: Site, client: str) -> None:
    messages = site.play(client, "broadcast")
    assert {(message["consumer"], message["body"]) for message in messages} == {
        (member, f"m{number}") for member in range(2) for number in range(4)
    }


@pytest.mark.parametrize("client", ["go", "cpp"])
def test_order_is_kept(site: Site, client: str) -> None:
    """Go's consumer asks for the second message once more."""
    given = bodies(site.play(client, "orderly"))
    assert given == sorted(given)
    assert set(given) == {"m0", "m1", "m2", "m3"}
    assert client != "go" or given.count("m1") > 1


@pytest.mark.parametrize("client", ["go", "cpp", "node"])
def test_failed_message_comes_again(site: Site, client: str) -> None:
    messages = site.play(client, "retry")
    assert {(message["body"], message["again"]) for message in messages} == {
        ("m0", 0), ("m0", 1), ("m0", 2)
    }  # fmt: skip


@pytest.mark.parametrize("client", ["go", "cpp", "node"])
def test_delayed_messages_wait(site: Site, client: str) -> None:
    messages = site.play(client, "delay")
    assert set(bodies(messages)) == {"level-1", "level-2"}
    for message in messages:
        assert message["waited"] >= 1000 * int(message["body"][-1]), message


@pytest.mark.parametrize("client", ["go"])
def test_transactions_end_as_the_producer_says(site: Site, client: str) -> None:
    assert set(bodies(site.play(client, "transaction"))) == {"commit", "commit-later"}


@pytest.mark.parametrize(
    ("client", "sent"),
    [
        ("go", {"batch-0", "batch-1", "later", "one-way"}),
        ("cpp", {"batch-0", "batch-1", "one-way"}),
    ],
)
def test_every_way_of_sending_arrives(site: Site, client: str, sent: set[str]) -> None:
    assert set(bodies(site.play(client, "ways"))) == sent
