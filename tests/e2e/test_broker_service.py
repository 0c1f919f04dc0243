"""A broker inside this process: name servers hear of it, and a stop leaves nothing behind."""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.service import BrokerService
from ledgermq.broker.service.ground import wall_clock_ms
from ledgermq.broker.storage import storage
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.cli.main import main
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import SendMessageRequestHeaderV2
from ledgermq.protocol.transport import CommandClient, CommandProtocol, CommandServer
from ledgermq.state.topics import TopicConfig
from tests.processes import SMALL_STORE

reactor: Any = installed_reactor


class ListNameServer:
    """A name server that accepts everything and keeps it."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self.connections: list[CommandProtocol] = []
        self.server = CommandServer(reactor, self, "127.0.0.1", 0)
        self.port = 0

    async def start(self) -> None:
        self.port = await self.server.start()

    def connection_made(self, connection: CommandProtocol) -> None:
        self.connections.append(connection)

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        self.connections.remove(connection)

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> None:
        for command in commands:
            self.requests.append(command)
            connection.send(command.response(0))

    def broker_ids(self, code: RequestCode) -> list[str]:
        return [
            command.ext_fields["brokerId"]
            for command in self.requests
            if command.code == code and command.ext_fields
        ]


async def until(condition: Any, what: str) -> None:
    """Waits for a condition, ten seconds at most."""
    for _ in range(1000):
        if condition():
            return
        await deferLater(reactor, 0.01)
    raise AssertionError(f"still waiting for {what}")


def send_request(topic: str, body: bytes = b"x", properties: str = "") -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="pg",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties,
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)


class LargeRules:
    """Rules of access control that are larger than a segment."""

    alarm = None

    def to_record(self) -> dict[str, object]:
        return {"kind": "access", "sealed": "x" * 100_000}

    def follow(self, record: object) -> None:
        raise AssertionError("the log took what is larger than a segment")

    def reload(self) -> bool:
        return False


class BrokerServiceTest(TestCase):
    """One member alone in its group, on the reactor of the test."""

    def new_service(self, **settings: str) -> tuple[BrokerService, Deferred[None]]:
        self.folder = self.new_folder()
        return self.service_on(self.folder, **settings)

    def new_folder(self) -> Path:
        folder = tempfile.TemporaryDirectory(prefix="ledgermq-broker-")
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def service_on(
        self, folder: Path, *, ahead_ms: int | None = None, **settings: str
    ) -> tuple[BrokerService, Deferred[None]]:
        """Its clock is the machine's, or one so far ahead."""
        ready: Deferred[None] = Deferred()
        config = load_broker_config(
            None,
            {
                "brokerIP1": "127.0.0.1",
                "brokerName": "inside",
                "listenPort": "0",
                "storePathRootDir": str(folder),
                **dict(setting.split("=") for setting in SMALL_STORE),
                **settings,
            },
        )

        def on_ready() -> None:
            if not ready.called:
                ready.callback(None)

        now_ms = None if ahead_ms is None else lambda: wall_clock_ms() + ahead_ms
        service = BrokerService(config, reactor, on_ready=on_ready, now_ms=now_ms)
        return service, ready

    async def test_stop_leaves_no_delayed_call_and_a_clean_store(self) -> None:
        service, ready = self.new_service()
        await service.start()
        await ready
        self.assertEqual((service.leadership.role, service.leadership.broker_id), ("LEADER", 0))
        client = CommandClient(reactor, *split(service.address))
        answer = await client.request(send_request("T"), 3000)
        self.assertEqual(answer.code, 0)
        await service.stop()
        await service.stop()
        await client.stop()
        calls = [str(call) for call in reactor.getDelayedCalls()]
        # Trial's own.
        self.assertEqual([call for call in calls if "onTimeout" not in call], [])
        self.assertFalse((self.folder / "abort").exists())
        topics = lenient_json.read((self.folder / "config" / "topics.json").read_bytes())
        self.assertIn("T", topics["topicConfigTable"])

    async def test_name_servers_hear_of_every_change(self) -> None:
        name_server = ListNameServer()
        await name_server.start()
        service, ready = self.new_service(namesrvAddr=f"127.0.0.1:{name_server.port}")
        await service.start()
        await ready
        register, unregister = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
        await until(lambda: "0" in name_server.broker_ids(register), "the leader's registration")
        self.assertNotIn("-1", name_server.broker_ids(register))

        def has_topic(name: str) -> bool:
            return any(
                name in command.body.decode()
                for command in name_server.requests
                if command.code == register
            )

        client = CommandClient(reactor, *split(service.address))
        await client.request(send_request("Fresh"), 3000)
        await until(lambda: has_topic('"Fresh"'), "the registration of a new topic")
        # A name server that came back has forgotten everything.
        name_server.requests.clear()
        name_server.connections[0].abort("test")
        await until(
            lambda: has_topic('"Fresh"'), "the registration with a name server that is back"
        )
        self.assertEqual(service.registered_with, [f"127.0.0.1:{name_server.port}"])
        await client.stop()
        await service.stop()
        self.assertEqual(name_server.broker_ids(unregister), ["0"])
        await name_server.server.stop()

    async def test_a_name_server_hears_of_one_changed_topic_alone(self) -> None:
        name_server = ListNameServer()
        await name_server.start()
        service, ready = self.new_service(
            namesrvAddr=f"127.0.0.1:{name_server.port}", maxTopicCount="30000"
        )
        await service.start()
        await ready
        for number in range(2000):
            service.state.put_topic(TopicConfig(f"topic-{number:06}"))

        def told(name: str) -> list[RemotingCommand]:
            """Registrations with that topic."""
            return [
                command
                for command in name_server.requests
                if command.code == RequestCode.REGISTER_BROKER and name in command.body.decode()
            ]

        await until(lambda: told('"topic-001999"'), "the registration of many topics")
        name_server.requests.clear()
        client = CommandClient(reactor, *split(service.address))
        await client.request(send_request("Fresh"), 3000)
        await until(lambda: told('"Fresh"'), "the registration of a new topic")
        (registration,) = told('"Fresh"')
        self.assertNotIn(b"topic-", registration.body)
        self.assertLess(len(registration.body), 1000)
        await client.stop()
        await service.stop()
        await name_server.server.stop()

    async def test_taken_port_fails_the_start_and_leaves_the_store_usable(self) -> None:
        first, ready = self.new_service()
        await first.start()
        await ready
        port = first.address.partition(":")[2]
        second, _ = self.service_on(self.new_folder(), listenPort=port)
        try:
            await second.start()
        except CannotListenError as error:
            self.assertIn(port, str(error))
        else:
            self.fail("two brokers on one port")
        await first.stop()
        third, ready = self.service_on(self.folder)
        await third.start()
        await ready
        await third.stop()

    async def test_taken_port_for_slaves_fails_the_start(self) -> None:
        settings = {"enableDLegerCommitLog": "false"}
        first, _ = self.new_service(**settings)
        await first.start()
        port = first.replication_address.partition(":")[2]
        second, _ = self.service_on(self.new_folder(), haListenPort=port, **settings)
        try:
            await second.start()
        except CannotListenError as error:
            self.assertIn(port, str(error))
        else:
            self.fail("two masters on one port for slaves")
        await first.stop()

    async def test_a_pair_without_a_ledger_leaves_no_delayed_call(self) -> None:
        settings = {"enableDLegerCommitLog": "false", "flushDiskType": "ASYNC_FLUSH"}
        master, _ = self.new_service(brokerRole="SYNC_MASTER", **settings)
        await master.start()
        slave, _ = self.service_on(
            self.new_folder(),
            brokerRole="SLAVE",
            brokerId="2",
            haMasterAddress=master.replication_address,
            **settings,
        )
        await slave.start()
        role = slave.leadership
        self.assertEqual((role.role, role.broker_id, role.is_serving), ("FOLLOWER", 2, False))
        client = CommandClient(reactor, *split(master.address))
        code = 11
        while code in (11, 12):
            code = (await client.request(send_request("T"), 30_000)).code
            await deferLater(reactor, 0.02)
        self.assertEqual(code, 0)
        await client.stop()
        await slave.stop()
        await master.stop()
        calls = [str(call) for call in reactor.getDelayedCalls()]
        # Trial's own.
        self.assertEqual([call for call in calls if "onTimeout" not in call], [])

    async def test_state_of_many_topics_and_offsets_goes_into_the_log(self) -> None:
        """However small messages have to be: else retention would wait for a snapshot for ever."""
        settings = {"maxMessageSize": "1024", "mappedFileSizeCommitLog": "65536"}
        service, ready = self.new_service(offsetReplicationIntervalMs="100", **settings)
        await service.start()
        await ready
        state = service.state
        for number in range(500):
            state.put_topic(TopicConfig(f"Topic-{number}"))
            for queue_id in range(50):
                state.commits.tell("g", f"Topic-{number}", queue_id, 10**9)
        state.write_offsets()
        await until(lambda: state.offsets.find("g", "Topic-499", 49) is not None, "the offsets")
        await until(lambda: state.is_swept, "the sweep of the start")
        before = state.sweep_index
        state.begin_sweep()
        await until(lambda: state.is_swept and state.sweep_index > before, "the sweep")
        self.assertIsNone(service.leadership.alarm)
        # The queues' ends go into the log, too, and hold up no message.
        client = CommandClient(reactor, *split(service.address))
        for number in range(500):
            answer = await client.request(send_request(f"Topic-{number}"), 3000)
            self.assertEqual((answer.code, answer.remark), (0, None))
        await client.stop()
        await service.stop()
        # What a member knows that has nothing but the log.
        shutil.rmtree(self.folder / "config")
        (self.folder / "dispatch.checkpoint").unlink()
        again, ready = self.service_on(self.folder, **settings)
        await again.start()
        await ready
        self.assertIsNotNone(again.state.topics.find("Topic-499"))
        self.assertEqual(again.state.offsets.find("g", "Topic-499", 49), 10**9)
        await again.stop()

    async def test_state_that_the_log_cannot_take_is_told_to_operators(self) -> None:
        service, ready = self.new_service(maxMessageSize="1024", mappedFileSizeCommitLog="65536")
        await service.start()
        await ready
        service.state.access = LargeRules()
        service.state.access_changes.write()
        await until(lambda: service.leadership.alarm is not None, "the alarm")
        self.assertIn("access control cannot be stored", service.leadership.alarm or "")
        self.assertIn("mappedFileSizeCommitLog", service.leadership.alarm or "")
        await service.stop()

    async def told_of_clocks(
        self, folder: Path, ahead_ms: int, *, is_behind: bool = False, **settings: str
    ) -> list[str]:
        """Starts a broker, sends and stops it: "begins" for a line in the log about its first
        record, "ahead" for one about the log, and the hours that its runtime information says then.
        """
        told: list[str] = []

        def observe(event: Any) -> None:
            text = str(event.get("log_format"))
            told.extend(["begins"] * ("begins to store" in text))
            told.extend(["ahead"] * ("latest store time in the log" in text))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        service, ready = self.service_on(folder, ahead_ms=ahead_ms, **settings)
        await service.start()
        await ready
        client = CommandClient(reactor, *split(service.address))
        self.assertEqual((await client.request(send_request("T"), 3000)).code, 0)
        if is_behind:
            await until(lambda: "ahead" in told, "a word about the log")
            command = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = lenient_json.read((await client.request(command, 3000)).body)["table"]
            told.append(str(round(int(table["ledgerTimeAheadMs"]) / 3_600_000)))
        await client.stop()
        await service.stop()
        globalLogPublisher.removeObserver(observe)
        return told

    async def test_store_times_go_back_to_a_clock_that_is_trusted(self) -> None:
        year_ms, told = 365 * 86_400_000, list[str]()

        def observe(event: Any) -> None:
            if "store times go back" in str(event.get("log_format")):
                told.append(str(event["seconds"]))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for settings in ({}, {"enableDLegerCommitLog": "false"}):
            folder = self.new_folder()
            await self.told_of_clocks(folder, year_ms, **settings)
            await self.told_of_clocks(folder, 0, **settings)
            self.assertEqual(told, [])
            await self.told_of_clocks(folder, 0, storeTimeFollowsClock="true", **settings)
            self.assertEqual([seconds[:5] for seconds in told], ["31535"])
            told.clear()

    async def test_clock_that_lies_apart_from_the_log_is_told(self) -> None:
        day_ms = 86_400_000
        for settings in ({}, {"enableDLegerCommitLog": "false"}):
            folder = self.new_folder()
            self.assertEqual(await self.told_of_clocks(folder, 0, **settings), [])
            far_ms = 2 * day_ms
            self.assertEqual(await self.told_of_clocks(folder, far_ms, **settings), ["begins"])
            told = await self.told_of_clocks(folder, day_ms, is_behind=True, **settings)
            self.assertEqual(told, ["ahead", "24"])

    async def test_state_file_that_would_be_too_large_stays_and_the_broker_goes_on(self) -> None:
        patch = self.patch(storage, "StateFile", partial(StateFile, bytes_max=20_000))
        service, ready = self.new_service()
        await service.start()
        await ready
        for number in range(500):
            service.state.put_topic(TopicConfig(f"Topic-{number}"))
        client = CommandClient(reactor, *split(service.address))

        async def alarm_of() -> str:
            command = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await client.request(command, 3000)
            return str(lenient_json.read(answer.body)["table"]["stateAlarm"])

        await until(lambda: service.leadership.alarm is not None, "the alarm")
        self.assertRegex(await alarm_of(), r"topics\.json .* allowed are 20000")
        self.assertEqual((await client.request(send_request("Topic-499"), 3000)).code, 0)
        await client.stop()
        await service.stop()
        self.assertFalse((self.folder / "config" / "topics.json").exists())
        # The next start has what the file lacks from the log, also the one after it.
        for _ in range(2):
            service, ready = self.service_on(self.folder)
            await service.start()
            await ready
            self.assertIsNotNone(service.state.topics.find("Topic-499"))
            self.assertEqual(service.messages.max_offset("Topic-499", 0), 1)
            await service.stop()
        patch.restore()
        service, ready = self.service_on(self.folder)
        await service.start()
        await ready
        await service.stop()
        self.assertIsNone(service.leadership.alarm)
        self.assertIn(b"Topic-499", (self.folder / "config" / "topics.json").read_bytes())

    async def test_store_with_delayed_messages_is_a_good_one(self) -> None:
        for settings in ({}, {"enableDLegerCommitLog": "false"}):
            service, ready = self.new_service(messageDelayLevel="1s 1h", **settings)
            await service.start()
            await ready
            client = CommandClient(reactor, *split(service.address))
            for properties in ("DELAY\x011\x02TAGS\x01red", "DELAY\x012", "TAGS\x01red"):
                request = send_request("T", properties=properties)
                self.assertEqual((await client.request(request, 3000)).code, 0)
            await until(
                lambda service=service: (
                    sum(  # type: ignore[misc]
                        service.messages.max_offset("T", queue_id) for queue_id in range(4)
                    )
                    == 2
                ),
                "the delivery of the first one",
            )
            await client.stop()
            await service.stop()
            self.assertEqual(main(["log", "verify", str(self.folder)]), 0)

    async def test_broken_state_file_of_an_empty_store_is_put_aside(self) -> None:
        service, ready = self.new_service()
        (self.folder / "config").mkdir(parents=True)
        (self.folder / "config" / "topics.json").write_text("{")
        await service.start()
        await ready
        self.assertEqual((self.folder / "config" / "topics.json.refused").read_text(), "{")
        await service.stop()


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
