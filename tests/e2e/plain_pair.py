"""A master and a slave without a ledger, as processes, at a name server."""

from __future__ import annotations

from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.route import TopicRouteData
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram
from tests.waiting import wait_until

NAME = "pair"
# Signs of life come often, so that tests need not wait for them, and files are small.
QUICK = (
    "haSendHeartbeatInterval=200",
    "haHousekeepingInterval=30000",
    "flushDiskType=ASYNC_FLUSH",
    "maxMessageSize=16384",
    "mappedFileSizeCommitLog=65536",
)
ASKS_S = 30.0


class PlainBroker:
    """One broker of the pair that may be started, killed and started again on its store."""

    def __init__(
        self, folder: Path, namesrv: str, role: str, *settings: str, store: Path | None = None
    ) -> None:
        self.store = store or folder / role.lower()
        self._folder = folder
        port = free_ports(1, spread=(0, 1))[0]
        self.address = f"127.0.0.1:{port}"
        self._words = [
            "broker", "--json", "-n", namesrv, f"listenPort={port}", "brokerIP1=127.0.0.1",
            f"brokerName={NAME}", f"brokerRole={role}", "enableDLegerCommitLog=false",
            f"brokerId={int(role == 'SLAVE')}", f"storePathRootDir={self.store}",
            *SMALL_STORE, *QUICK, *settings,
        ]  # fmt: skip

    def start(self) -> LiveProgram:
        """Starts it; the caller ends it."""
        return LiveProgram(self._words, self._folder / f"{self.store.name}.log")

    def client(self) -> WireClient:
        """A connection to it."""
        return WireClient(self.address, timeout_s=ASKS_S)

    def wait_for_code(self, code: int, what: str) -> None:
        """Waits until a send to topic `Probe` is answered with a code."""

        def is_answered() -> bool:
            try:
                with self.client() as client:
                    return client.send("Probe", 0, b"probe").code == code
            except ConnectionError:
                return False

        wait_until(is_answered, what=what, deadline_s=60.0)

    def log_files(self) -> dict[str, bytes]:
        """Its commit log by file; files without a record are left out."""
        folder = self.store / "commitlog"
        contents = {path.name: path.read_bytes() for path in sorted(folder.glob("[0-9]*"))}
        return {name: content for name, content in contents.items() if content.strip(b"\0")}


def wait_until_equal(master: PlainBroker, slave: PlainBroker) -> None:
    """Waits until the slave's files are those of its master."""
    wait_until(
        lambda: slave.log_files() == master.log_files(),
        what="equal commit logs",
        deadline_s=60.0,
    )


def brokers_in_route(namesrv: str, topic: str) -> dict[int, str]:
    """Address by broker id, as the name server tells clients."""
    with WireClient(namesrv) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC.value, {"topic": topic})
    if answer.code != 0:
        return {}
    brokers = TopicRouteData.decode(answer.body).broker_datas
    return {
        number: address for broker in brokers for number, address in broker.broker_addrs.items()
    }
