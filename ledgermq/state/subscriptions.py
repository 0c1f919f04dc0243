"""The table of subscription groups: what each consumer group may do on this broker.

Pure, like `topics.py`, and replicated the same way. Sources: `SubscriptionGroupConfig.java`,
`SubscriptionGroupManager.java`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ledgermq.protocol.group_settings import DEFAULT_SETTINGS, GroupSettings
from ledgermq.state import names
from ledgermq.state.json_values import INT64, truth, whole_number
from ledgermq.state.named_table import NamedTable

_RETRIES_MAX_DEFAULT: Final = 16
# What a group takes as JSON besides its name, which stands there twice, and its settings of 5.x.
_JSON_BYTES: Final = 512


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

    @property
    def json_bytes(self) -> int:
        """At most what it takes as JSON, with its name."""
        changes = self.settings.changes()
        # With escapes, as in records.
        settings = len(json.dumps(changes)) if changes else 0
        return _JSON_BYTES + 2 * len(self.name) + settings

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
            broker_id=whole_number(value, "brokerId", 0, INT64),
            slow_reader_broker_id=whole_number(value, "whichBrokerWhenConsumeSlowly", 1, INT64),
            notifies_members=truth(value, "notifyConsumerIdsChangedEnable", True),
            settings=GroupSettings.kept(value),
        )


class SubscriptionGroupTable(NamedTable[SubscriptionGroup]):
    """All groups of this broker; subscriptionGroup.json is its document, and the answer to 201."""

    def __init__(self, groups_max: int, *, knows_light_queues: bool = False) -> None:
        """Begins empty.

        Args:
            groups_max: groups that may be there.
            knows_light_queues: groups that are named as light queues are there without being in
                the table.
        """
        super().__init__(
            SubscriptionGroup.from_json,
            noun="subscription group",
            table_key="subscriptionGroupTable",
            count_max=groups_max,
            count_key="maxGroupCount",
        )
        self._knows_light_queues = knows_light_queues

    def find(self, name: str) -> SubscriptionGroup | None:
        group = self._entries.get(name)
        if group is None and self._knows_light_queues and names.is_light_group(name):
            return SubscriptionGroup(name)
        return group


def built_in_groups() -> list[SubscriptionGroup]:
    """Returns the groups that upstream's broker makes at every start."""
    return [SubscriptionGroup(name) for name in names.SYSTEM_GROUPS]


def is_created_on_use(name: str, auto_create_groups: bool) -> bool:
    """True when an unknown group comes into being by its first use."""
    return auto_create_groups or name.startswith(names.SYSTEM_GROUP_PREFIX)
