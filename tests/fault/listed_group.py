"""Brokers of one group as processes, each with a configuration file that names its own member list.

What is sent goes to whichever member takes it; what was acknowledged is kept and looked for.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram, Programs
from tests.waiting import wait_until

TOPIC = "Orders"
GROUP = "broker-a"
_ANSWER_S = 4.0


class ListedGroup(Programs):
    """Members by id; each has ports of its own for as long as the test runs."""

    def __init__(self, folder: Path, member_ids: Iterable[str]) -> None:
        super().__init__()
        self.folder = folder
        ids = list(member_ids)
        ports = free_ports(2 * len(ids), spread=(0, -2))
        self._ports = {one: (ports[2 * i], ports[2 * i + 1]) for i, one in enumerate(ids)}
        # Bodies that some member acknowledged.
        self.acked: list[bytes] = []
        self._numbers = itertools.count()

    def ledger_address(self, member_id: str) -> str:
        return f"127.0.0.1:{self._ports[member_id][1]}"

    def peers(self, *member_ids: str) -> str:
        """A member list with the addresses of these members."""
        return ";".join(f"{one}-{self.ledger_address(one)}" for one in member_ids)

    def configure(self, member_id: str, peers: str, **changes: str) -> Path:
        """Writes the configuration file of a member, and returns its path.

        Args:
            member_id: whose ports and directory these are.
            peers: of dLegerPeers.
            changes: other keys.
        """
        settings = {
            "listenPort": str(self._ports[member_id][0]),
            "brokerIP1": "127.0.0.1",
            "brokerName": GROUP,
            "storePathRootDir": str(self.folder / member_id),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerPeers": peers,
            "dLegerSelfId": member_id,
            "flushDiskType": "SYNC_FLUSH",
            **changes,
        }
        path = self.folder / f"{member_id}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def start(self, member_id: str, peers: str, **changes: str) -> LiveProgram:
        """Starts a member with a member list; its log begins anew."""
        config = self.configure(member_id, peers, **changes)
        log = self.folder / f"{member_id}.log"
        log.unlink(missing_ok=True)
        words = ["broker", "--json", "-c", config, *SMALL_STORE]
        self.programs[member_id] = LiveProgram(words, log)
        return self.programs[member_id]

    def start_all(self, *member_ids: str) -> None:
        """Starts members with one list, and waits until they take messages."""
        for member_id in member_ids:
            self.start(member_id, self.peers(*member_ids))
        self.send(member_ids)

    def stop(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.programs.pop(member_id).stop()

    def kill(self, *member_ids: str) -> None:
        for member_id in member_ids:
            program = self.programs.pop(member_id)
            program.kill()
            program.stop()

    def refusal(self, member_id: str) -> str:
        """Waits for the end of a member that does not start; returns the reason on stderr."""
        program = self.programs.pop(member_id)
        try:
            exit_code = program.wait()
        finally:
            program.stop()
        text = program.log_text()
        assert exit_code == 78, (exit_code, text[-2000:])
        reasons = [line for line in text.splitlines() if line.startswith("ledgermq: ")]
        assert len(reasons) == 1 and "Traceback" not in text, text[-2000:]
        return reasons[0]

    def takes(self, member_id: str) -> bool:
        """Sends one message to one member; tells whether it was acknowledged."""
        body = b"%d" % next(self._numbers)
        try:
            with WireClient(f"127.0.0.1:{self._ports[member_id][0]}", _ANSWER_S) as client:
                if client.send(TOPIC, 0, body).code != 0:
                    return False
        except OSError:
            return False
        self.acked.append(body)
        return True

    def send(self, member_ids: Iterable[str], count: int = 10) -> None:
        """Sends until so many messages are acknowledged by some of these members."""
        ids, goal = list(member_ids), len(self.acked) + count

        def is_enough() -> bool:
            return any(self.takes(one) for one in ids) and len(self.acked) >= goal

        wait_until(is_enough, what=f"{count} acknowledgements of {ids}", deadline_s=120)

    def leaders(self) -> list[str]:
        """Members that say that they take messages."""
        return [one for one, program in self.programs.items() if program.status.get("serving")]

    def figures(self, member_id: str) -> Mapping[str, str]:
        """What `brokerStatus` shows of a member; nothing while it is not reached."""
        try:
            with WireClient(f"127.0.0.1:{self._ports[member_id][0]}") as client:
                answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value)
        except OSError:
            return {}
        table: dict[str, str] = json.loads(answer.body)["table"]
        return table

    def log_text(self, member_id: str) -> str:
        return self.programs[member_id].log_text()

    def wait_until_whole(self, *member_ids: str) -> None:
        """Waits for one leader, whom all follow and count for, and for no alarm at any of them."""

        def is_whole() -> bool:
            if len(self.leaders()) != 1 or not self.takes(self.leaders()[0]):
                return False
            found = [self.figures(one) for one in member_ids]
            followers = "".join(one.get("ledgerFollowers", "") for one in found)
            return (
                all(found)
                and len({one["ledgerTerm"] for one in found}) == 1
                and followers.count("heard") == len(member_ids) - 1
                and "not counted" not in followers
                and not any(one["ledgerAlarm"] or one["ledgerBootstrap"] for one in found)
            )

        wait_until(is_whole, what=f"a whole group of {member_ids}", deadline_s=120)

    def assert_nothing_is_lost(self) -> None:
        """Reads the queue at the leader: each acknowledged message stands in it, once."""
        (leader,) = self.leaders()
        with WireClient(f"127.0.0.1:{self._ports[leader][0]}") as client:
            bodies = [bytes(record.body) for record in client.read_queue(TOPIC, 0)]
        assert len(set(bodies)) == len(bodies)
        assert set(self.acked) <= set(bodies)
