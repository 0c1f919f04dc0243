"""Looks into the store and its upkeep by hand: counted things (315), consume queues (321), clean-up
(306, 316), settings (25).

Settings are changed in memory only, and only the few that are listed here: what a configuration
may name elsewhere, files, programs, addresses, is nothing for whoever can connect. Source:
`AdminBrokerProcessor.java`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from twisted.logger import Logger

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clients.heartbeat import subscription_data
from ledgermq.broker.config.broker_config import BrokerConfig, change_settings
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.selectors.filters import PropertyMatcher, Subscription
from ledgermq.logs.levels import CHANGED_S, PROCESS_LEVELS, LevelError
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    QueryConsumeQueueRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.properties_file import parse_properties
from ledgermq.protocol.record import decode_record_head
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import InvalidRequestError

# Read each time they are used, and harmless: no path, address, program or limit of memory.
CHANGEABLE_KEYS: Final = (
    "brokerPermission",
    "defaultQueryMaxNum",
    "enablePropertyFilter",
    "fileReservedTime",
    "notifyConsumerIdsChangedEnable",
    "offsetCheckInSlave",
    "rejectTransactionMessage",
    "shortPollingTimeMills",
    "slaveReadEnable",
)
# Begins a setting that changes from which level on events of a namespace are logged.
_LOG_LEVEL: Final = "logLevel."
_UNITS_MAX: Final = 1000
# What the units of one answer may use of a turn: some thousand of them, or few with a condition.
_MATCHING_MS_MAX: Final = 5.0

_log = Logger()


class Units(Protocol):
    """What is needed of a message store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int: ...

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> list[tuple[int, int, int]]: ...

    def record_at(self, physical_offset: int) -> bytes | None: ...

    def queues(self, topic: str) -> list[int]: ...

    def topics(self) -> list[str]: ...

    def delete_topic(self, topic: str) -> int: ...


class InspectionProcessor:
    """Answers operators who look closely."""

    def __init__(
        self,
        config: BrokerConfig,
        state: BrokerState,
        clients: ClientTable,
        store: Units,
        statistics: Statistics,
        clock_ms: Callable[[], float],
        clean_soon: Callable[[], None],
    ) -> None:
        """Binds the parts; `clock_ms` is monotonic, `clean_soon` has old files looked for."""
        self._config = config
        self._state = state
        self._clients = clients
        self._store = store
        self._statistics = statistics
        self._clock_ms = clock_ms
        self._clean_soon = clean_soon

    def view_stats(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """VIEW_BROKER_STATS_DATA (315): one counter over a minute, an hour and a day."""
        header = command.header(ViewBrokerStatsDataRequestHeader)
        now_ms = int(self._clock_ms())
        data = self._statistics.view(header.stats_name, header.stats_key, now_ms)
        if data is None:
            raise InvalidRequestError(
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return command.response(ResponseCode.SUCCESS, body=data.encode())

    def query_queue(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """QUERY_CONSUME_QUEUE (321): units of one consume queue, and what a group wants of them.

        A condition on properties looks at each message: the answer ends when its time is over.
        """
        header = command.header(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic or "", header.queue_id
        if queue_id not in self._store.queues(topic):
            raise InvalidRequestError(f"{queue_id}@{topic} is not exist!")
        body: dict[str, Any] = {
            "maxQueueIndex": self._store.max_offset(topic, queue_id),
            "minQueueIndex": self._store.min_offset(topic, queue_id),
        }
        live = self._clients.find_group(header.consumer_group) if header.consumer_group else None
        subscription = None if live is None else live.subscriptions.get(topic)
        if subscription is not None:
            body["filterData"] = _filter_text(subscription, header.consumer_group or "")
            body["subscriptionData"] = subscription_data(subscription)
        first = max(header.index, body["minQueueIndex"])
        count = min(max(header.count, 0), _UNITS_MAX)
        units = self._store.queue_units(topic, queue_id, first, count)[:count]
        rows: list[dict[str, Any]] = []
        end_ms = self._clock_ms() + _MATCHING_MS_MAX
        matches = None if subscription is None else subscription.find_property_matcher()
        matcher = None if subscription is None else subscription.matcher
        for place, size, tags_code in units:
            if matches is None:
                is_wanted = matcher is None or matcher(tags_code)
            else:
                is_wanted = self._matches(matches, place)
            rows.append(
                {
                    "eval": is_wanted,
                    "physicOffset": place,
                    "physicSize": size,
                    "tagsCode": tags_code,
                }
            )
            if self._clock_ms() >= end_ms:
                break
        body["queueData"] = rows
        return command.response(ResponseCode.SUCCESS, body=lenient_json.write(body))

    def _matches(self, matches: PropertyMatcher, place: int) -> bool:
        record = self._store.record_at(place)
        if record is None:
            return False
        return matches(decode_properties(decode_record_head(record).properties))

    # Clean-up.

    def clean_queues(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """CLEAN_EXPIRED_CONSUMEQUEUE (306): nothing is left, retention cuts queues with the log."""
        return command.response(ResponseCode.SUCCESS)

    def clean_topics(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """CLEAN_UNUSED_TOPIC (316): deletes queues here whose topic is configured no more."""
        for topic in self._store.topics():
            if self._state.topics.find(topic) is None and not names.is_system_topic(topic):
                _log.info("deletes the queues of {topic}, which is no topic any more", topic=topic)
                self._store.delete_topic(topic)
        return command.response(ResponseCode.SUCCESS)

    def clean_log(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """DELETE_EXPIRED_COMMITLOG (329, 4.9.8): what has expired goes soon, at any hour."""
        self._clean_soon()
        return command.response(ResponseCode.SUCCESS)

    # Settings.

    def change_settings(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """UPDATE_BROKER_CONFIG (25): changes settings until the next start.

        Raises:
            InvalidRequestError: a key cannot be changed; nothing was.
            ConfigError: a value is not allowed.
        """
        try:
            settings = parse_properties(command.body.decode("utf-8"))
        except ValueError as error:
            raise InvalidRequestError(f"the settings cannot be read: {error}") from error
        levels = {
            name: settings.pop(name) for name in tuple(settings) if name.startswith(_LOG_LEVEL)
        }
        refused = sorted(set(settings) - set(CHANGEABLE_KEYS))
        if refused:
            raise InvalidRequestError(
                f"{', '.join(refused)[:200]} cannot be changed while the broker runs, nothing was"
                f" changed; these can, until the next start: {', '.join(CHANGEABLE_KEYS)}; and"
                f" {_LOG_LEVEL}NAMESPACE, for {CHANGED_S / 60:.0f} minutes"
            )
        self._check_levels(levels)
        change_settings(self._config, settings)
        for name, text in levels.items():
            PROCESS_LEVELS.change(name.removeprefix(_LOG_LEVEL), text)
        for name, text in (settings | levels).items():
            _log.info("{peer} sets {name} to {text}", peer=connection.peer, name=name, text=text)
        self._state.permission_changed()
        return command.response(ResponseCode.SUCCESS)

    def _check_levels(self, levels: Mapping[str, str]) -> None:
        """Raises InvalidRequestError for the first change of a level that is not allowed."""
        try:
            PROCESS_LEVELS.check_all(
                {name.removeprefix(_LOG_LEVEL): text for name, text in levels.items()}
            )
        except LevelError as error:
            raise InvalidRequestError(f"{', '.join(levels)[:200]}: {error}") from error


def _filter_text(subscription: Subscription, group: str) -> str:
    """What a group filters by properties, as the text that tools print; upstream knows a bloom
    filter, too.
    """
    if subscription.find_property_matcher() is None:
        return "null"
    document = {
        "bornTime": subscription.version,
        "clientVersion": subscription.version,
        "consumerGroup": group,
        "dead": False,
        "deadTime": 0,
        "expression": subscription.expression,
        "expressionType": subscription.expression_type,
        "topic": subscription.topic,
    }
    return json.dumps(document, indent="\t", separators=(",", ":"), ensure_ascii=False)
