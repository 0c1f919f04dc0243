"""The table of subscription groups: what each consumer group may do on this broker.

Pure, like `topics.py`, and replicated the same way. Sources: `SubscriptionGroupConfig.java`,
`SubscriptionGroupManager.java`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ledgermq.broker import names
from ledgermq.broker.data_version import DataVersion, truth, whole_number
from ledgermq.broker.errors import SystemBusyError
from ledgermq.protocol.group_settings import DEFAULT_SETTINGS, GroupSettings

_RETRIES_MAX_DEFAULT: Final = 16


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """Settings of one consumer group."""

    name: str
    can_consume: bool = True
    can_consume_from_min: bool = True
    can_broadcast: bool = True
    # Queues of the retry topic; 0 or less: messages that come back are dropped.
    retry_queue_count: int = 1
    # Deliveries after which a message that comes back goes to the dead letters.
    retries_max: int = _RETRIES_MAX_DEFAULT
    # Broker id clients read from, and the one slow readers are sent to.
    broker_id: int = 0
    slow_reader_broker_id: int = 1
    # Members are told at once when one comes or goes.
    notifies_members: bool = True
    # What 5.x knows besides; kept for its proxies and tools.
    settings: GroupSettings = DEFAULT_SETTINGS

    def to_json(self) -> dict[str, Any]:
        """Returns upstream's object; as 4.9 has it while nobody set what 5.x knows."""
        return {
            **self.settings.changes(),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.can_broadcast,
            "consumeEnable": self.can_consume,
            "consumeFromMinEnable": self.can_consume_from_min,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notifies_members,
            "retryMaxTimes": self.retries_max,
            "retryQueueNums": self.retry_queue_count,
            "whichBrokerWhenConsumeSlowly": self.slow_reader_broker_id,
        }

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Reads upstream's object; what is missing or of another type takes its default."""
        return cls(
            name=name,
            can_consume=truth(value, "consumeEnable", True),
            can_consume_from_min=truth(value, "consumeFromMinEnable", True),
            can_broadcast=truth(value, "consumeBroadcastEnable", True),
            retry_queue_count=whole_number(value, "retryQueueNums", 1),
            retries_max=whole_number(value, "retryMaxTimes", _RETRIES_MAX_DEFAULT),
            broker_id=whole_number(value, "brokerId", 0),
            slow_reader_broker_id=whole_number(value, "whichBrokerWhenConsumeSlowly", 1),
            notifies_members=truth(value, "notifyConsumerIdsChangedEnable", True),
            settings=GroupSettings.kept(value),
        )


class SubscriptionGroupTable:
    """All subscription groups of this broker by name."""

    def __init__(self, groups_max: int, *, knows_light_queues: bool = False) -> None:
        self._groups: dict[str, SubscriptionGroup] = {}
        self._groups_max = groups_max
        # Groups that are named as light queues are there without being in the table.
        self._knows_light_queues = knows_light_queues
        # Compared for equality by tools and other brokers.
        self.version = DataVersion()
        # Changes of this table in this process: whoever caches something compares it.
        self.generation = 0

    def __len__(self) -> int:
        return len(self._groups)

    def find(self, name: str) -> SubscriptionGroup | None:
        """Returns the group, or None."""
        group = self._groups.get(name)
        if group is None and self._knows_light_queues and names.is_light_group(name):
            return SubscriptionGroup(name)
        return group

    def all(self) -> list[SubscriptionGroup]:
        """Returns all groups in the order of their names."""
        return [self._groups[name] for name in sorted(self._groups)]

    def check_room(self, name: str) -> None:
        """Raises SystemBusyError when one more group would pass the limit."""
        if name not in self._groups and len(self._groups) >= self._groups_max:
            raise SystemBusyError(
                f"subscription group[{name}] not created: there are {len(self._groups)} groups,"
                f" allowed are {self._groups_max} (key maxGroupCount)"
            )

    def put(self, group: SubscriptionGroup, now_ms: int) -> bool:
        """Adds or replaces a group; returns False when it was there exactly so."""
        if self._groups.get(group.name) == group:
            return False
        self._groups[group.name] = group
        self.version = self.version.next(now_ms)
        self.generation += 1
        return True

    def remove(self, name: str, now_ms: int) -> bool:
        """Drops a group; returns False when there was none."""
        if self._groups.pop(name, None) is None:
            return False
        self.version = self.version.next(now_ms)
        self.generation += 1
        return True

    def replace_all(self, groups: Iterable[SubscriptionGroup], version: DataVersion) -> None:
        """Takes over the whole table of a leader or a file."""
        self._groups = {group.name: group for group in groups}
        self.version = version
        self.generation += 1

    def follow(
        self, put: Iterable[SubscriptionGroup], removed: Iterable[str], version: DataVersion
    ) -> None:
        """Takes over changes of a leader together with its version."""
        for group in put:
            self._groups[group.name] = group
        for name in removed:
            self._groups.pop(name, None)
        self.version = version
        self.generation += 1

    def to_json(self) -> dict[str, Any]:
        """Returns the content of subscriptionGroup.json, which is also the body of code 201."""
        return {
            "dataVersion": self.version.to_json(),
            "subscriptionGroupTable": {
                name: group.to_json() for name, group in self._groups.items()
            },
        }

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of subscriptionGroup.json; entries that are not groups are left
        out.
        """
        table = value.get("subscriptionGroupTable")
        entries = table.items() if isinstance(table, Mapping) else ()
        self.replace_all(
            (
                SubscriptionGroup.from_json(name, entry)
                for name, entry in entries
                if isinstance(entry, Mapping)
            ),
            DataVersion.from_json(value.get("dataVersion")),
        )


def built_in_groups() -> list[SubscriptionGroup]:
    """Returns the groups that upstream's broker makes at every start."""
    return [SubscriptionGroup(name) for name in names.SYSTEM_GROUPS]


def is_created_on_use(name: str, auto_create_groups: bool) -> bool:
    """True when an unknown group comes into being by its first use."""
    return auto_create_groups or name.startswith(names.SYSTEM_GROUP_PREFIX)
