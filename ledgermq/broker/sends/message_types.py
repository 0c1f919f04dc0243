"""What kind of message one is, and which kinds a broker or a topic takes.

Pure. Source: `TopicMessageType.java`, `HookUtils.handleScheduleMessage` of 5.3.
"""

from collections.abc import Mapping
from typing import Final

from ledgermq.protocol.properties import (
    DELAY_TIME_LEVEL,
    SHARDING_KEY,
    TIMERS,
    TRANSACTION_PREPARED,
)
from ledgermq.state.errors import IllegalMessageError

NORMAL: Final = "NORMAL"
FIFO: Final = "FIFO"
DELAY: Final = "DELAY"
TRANSACTION: Final = "TRANSACTION"
# Of a topic; any other one, upstream's MIXED and UNSPECIFIED among them, asks for nothing.
CHECKED_TYPES: Final = (NORMAL, FIFO, DELAY, TRANSACTION)


def type_of(properties: Mapping[str, str]) -> str:
    """Returns the type of a message, by its properties."""
    if properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if DELAY_TIME_LEVEL in properties or any(name in properties for name in TIMERS):
        return DELAY
    return FIFO if SHARDING_KEY in properties else NORMAL


def check_type(topic: str, topic_type: str | None, properties: Mapping[str, str]) -> None:
    """Refuses a message of another type than its topic has.

    Upstream's proxy does, with this code; its broker leaves it to that.

    Raises:
        IllegalMessageError: it has another one.
    """
    found = type_of(properties)
    if topic_type in CHECKED_TYPES and found != topic_type:
        raise IllegalMessageError(
            f"TopicMessageType validate failed, the expected type is {topic_type}, but actual type"
            f" is {found}: topic[{topic}] has the attribute message.type={topic_type}"
            " (key enableTopicMessageTypeCheck)"
        )


def refuse_timers(properties: dict[str, str], level: int) -> None:
    """Refuses a message with a timer of 5.x, which nobody would wait for here.

    Where it has a delay level, too, that one decides, and its timers are taken out.

    Raises:
        IllegalMessageError: it has a timer.
    """
    for name in TIMERS:
        if level:
            properties.pop(name, None)
        elif name in properties:
            raise IllegalMessageError(
                f"the message is illegal: its property {name} is {properties[name][:32]!r}, but"
                " this broker has no timers and would deliver it at once; it has delay levels"
                " (property DELAY, key messageDelayLevel)"
            )
