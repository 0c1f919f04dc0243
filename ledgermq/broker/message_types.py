"""What kind of message one is, and which kinds a broker or a topic takes.

Pure. Source: `TopicMessageType.java`, `HookUtils.handleScheduleMessage` of 5.3.
"""

from collections.abc import Mapping

from ledgermq.broker.errors import IllegalMessageError
from ledgermq.protocol.properties import TIMERS


def check_no_timer(properties: Mapping[str, str]) -> None:
    """Refuses a message with a timer of 5.x, which nobody would wait for here.

    Raises:
        IllegalMessageError: it has one.
    """
    for name in TIMERS:
        if name in properties:
            raise IllegalMessageError(
                f"the message is illegal: its property {name} is {properties[name][:32]!r}, but"
                " this broker has no timers and would deliver it at once; it has delay levels"
                " (property DELAY, key messageDelayLevel)"
            )
