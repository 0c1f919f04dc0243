"""What a program gives, checked before it goes anywhere: names, and the values of a message.

Brokers refuse such names for ever, and would store such values as nobody meant them. Pure.
Source: TopicValidator.java, Validators.java of 4.9.
"""

import re
from typing import Final

from ledgermq.client.errors import ConfigError, MessageError
from ledgermq.client.messages import Message

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_TOPIC_CHARS_MAX: Final = 127
_GROUP_CHARS_MAX: Final = 255
_NAME_CHARS_SHOWN: Final = 160
# Of brokers as they are delivered.
DELAY_LEVEL_MAX: Final = 18
_INT32_MAX: Final = 2**31 - 1


def topic_trouble(topic: object) -> str | None:
    """Returns why a name can be that of no topic; None when it can."""
    return _trouble("topic", topic, _TOPIC_CHARS_MAX)


def check_topic(topic: str) -> None:
    """Checks a topic as it stands on the wire.

    Raises:
        ConfigError: no topic can have that name.
    """
    if (trouble := topic_trouble(topic)) is not None:
        raise ConfigError(trouble)


def check_group(group: str) -> None:
    """Checks a group as it stands on the wire.

    Raises:
        ConfigError: no group can have that name.
    """
    if (trouble := _trouble("group", group, _GROUP_CHARS_MAX)) is not None:
        raise ConfigError(trouble)


def _trouble(kind: str, name: object, chars_max: int) -> str | None:
    if not isinstance(name, str):
        return f"{kind} is {name!r:.80}, a {type(name).__name__}; wanted: a text"
    if 0 < len(name) <= chars_max and _ALLOWED.fullmatch(name):
        return None
    if len(name) > chars_max:
        shown = name[:_NAME_CHARS_SHOWN]
        return f"{kind} {shown!r} has {len(name)} characters; allowed: {chars_max}"
    wrong = "".join(dict.fromkeys(_ALLOWED.sub("", name)))
    what = f"holds {wrong!r}" if wrong else "is empty"
    return f"{kind} {name!r} {what}; allowed: letters of ASCII, digits, _ - % and |"


def check_values(message: Message, delay_level_max: int) -> None:
    """Checks what a message has besides its topic and body.

    Raises:
        MessageError: with field, value and what is allowed.
    """
    # A member of an enumeration may be a text, or a number; a bool is none.
    if not isinstance(message.keys, str):
        raise _wrong(message, "keys", message.keys, "words in one text, separated by blanks")
    if not isinstance(message.tags, str):
        raise _wrong(message, "tags", message.tags, "one word in a text")
    if not _is_number(message.delay_level, 0, delay_level_max):
        allowed = f"0 to {delay_level_max} (ProducerConfig.delay_level_max)"
        raise _wrong(message, "delay_level", message.delay_level, allowed)
    if not _is_number(message.flag, -_INT32_MAX, _INT32_MAX):
        raise _wrong(message, "flag", message.flag, f"-{_INT32_MAX} to {_INT32_MAX}")
    if message.properties:
        for name, value in message.properties.items():
            if not isinstance(name, str):
                raise _wrong(message, "the name of a property", name, "a text")
            if not isinstance(value, str):
                raise _wrong(message, f"property {name}", value, "a text")


def _is_number(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _wrong(message: Message, field: str, value: object, allowed: str) -> MessageError:
    return MessageError(
        f"{field} is {value!r:.80}, a {type(value).__name__}; allowed: {allowed}",
        topic=message.topic if isinstance(message.topic, str) else None,
    )
