"""Attributes of topics, which tools of 5.x set: how a change is written, and what may be set here.

Pure. A change is a text: `+message.type=FIFO,-queue.type` sets one and removes another. What is not
named stays, so a tool of 4.9, which knows none, removes none. Sources: `TopicAttributes.java`,
`AttributeParser.java`, `AttributeUtil.java` of 5.3.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ledgermq.state.errors import InvalidParameterError, InvalidRequestError
from ledgermq.state.json_values import is_text

MESSAGE_TYPE: Final = "message.type"
# Of the text of a change; five attributes with their longest values have some 150.
CHANGE_CHARS_MAX: Final = 4096
# Of what a file or another broker tells of one topic: there may be attributes of later versions.
_KEPT_MAX: Final = 32
_KEPT_CHARS_MAX: Final = 256


class _Attribute(NamedTuple):
    """One attribute that upstream knows."""

    # What upstream allows, and why some of it is refused here, by value; None: all of it.
    values: tuple[str, ...]
    missing: Mapping[str, str]
    # Whether it may be set and removed once the topic is there.
    is_changeable: bool


_ATTRIBUTES: Final = {
    "queue.type": _Attribute(
        ("BatchCQ", "SimpleCQ"), {"BatchCQ": "batch consume queues"}, is_changeable=False
    ),
    "cleanup.policy": _Attribute(
        ("COMPACTION", "DELETE"), {"COMPACTION": "compaction"}, is_changeable=False
    ),
    MESSAGE_TYPE: _Attribute(
        ("DELAY", "FIFO", "MIXED", "NORMAL", "TRANSACTION", "UNSPECIFIED"), {}, is_changeable=True
    ),
}
# Known to upstream, and refused there as well unless it stores messages in tiers.
_RESERVE_TIME: Final = "reserve.time"


def change_attributes(
    current: Mapping[str, str], text: str, *, is_new: bool, allows_mixed: bool
) -> dict[str, str]:
    """Returns the attributes of a topic after a change.

    Args:
        current: those that it has.
        text: the change, `+name=value` and `-name` with commas between them; may be empty.
        is_new: the topic is made with them.
        allows_mixed: whether a topic may take messages of all types by its attribute.

    Raises:
        InvalidParameterError: a value that the broker does not allow.
        InvalidRequestError: the text cannot be read, an attribute is unknown or may not be changed,
            or it has no such value; nothing was changed.
    """
    if len(text) > CHANGE_CHARS_MAX:
        raise InvalidRequestError(
            f"attributes have {len(text)} characters, allowed are {CHANGE_CHARS_MAX}"
        )
    changed = dict(current)
    seen: set[str] = set()
    for piece in text.split(",") if text else ():
        sign, name, value = _read_piece(piece)
        if name in seen:
            raise InvalidRequestError(f"attributes: key duplication: {name}")
        seen.add(name)
        if is_new and sign == "-":
            raise InvalidRequestError(
                f"attributes: only add attribute is supported while creating topic. key: {name}"
            )
        if sign == "-" and name not in current:
            raise InvalidRequestError(f"attributes: attempt to delete a nonexistent key: {name}")
        _check(name, value, is_new=is_new, is_removed=sign == "-")
        if value == "MIXED" and not allows_mixed:
            raise InvalidParameterError(
                "MIXED message type is not supported. (key enableMixedMessageType)"
            )
        if sign == "-":
            del changed[name]
        else:
            changed[name] = value
    return changed


def _read_piece(piece: str) -> tuple[str, str, str]:
    """Takes one part of a change apart: its sign, the name, the value."""
    sign, (name, equals, value) = piece[:1], piece[1:].partition("=")
    if sign not in ("+", "-") or not name or "+" in name or "-" in name:
        raise InvalidRequestError(
            f"attributes: kv string format wrong: {piece[:64]!r}; allowed are +name=value and -name"
        )
    if sign == "+" and not value:
        raise InvalidRequestError(f"attributes: add/alter attribute format is wrong: {piece[:64]}")
    if sign == "-" and equals:
        raise InvalidRequestError(f"attributes: delete attribute format is wrong: {piece[:64]}")
    return sign, name, value


def _check(name: str, value: str, *, is_new: bool, is_removed: bool) -> None:
    """Checks one part of a change against what attributes there are."""
    attribute = _ATTRIBUTES.get(name)
    if name == _RESERVE_TIME:
        raise InvalidRequestError(
            "attributes: Update topic reserveTime not supported: this broker stores no tiers"
        )
    if attribute is None:
        raise InvalidRequestError(
            f"attributes: unsupported key: {name[:64]}; known are {', '.join(sorted(_ATTRIBUTES))}"
        )
    if not is_new and not attribute.is_changeable:
        raise InvalidRequestError(
            f"attributes: attempt to update an unchangeable attribute. key: {name}"
        )
    if is_removed:
        return
    if value not in attribute.values:
        raise InvalidRequestError(
            f"attributes: {name} is {value[:64]!r}, value is not in set:"
            f" [{', '.join(attribute.values)}]"
        )
    if value in attribute.missing:
        raise InvalidRequestError(
            f"attributes: {name} is {value}, but this broker has no {attribute.missing[value]}"
        )


def kept_attributes(value: Any) -> dict[str, str]:
    """Returns the attributes that a file or another broker tells, unknown ones, too; what cannot be
    one is left out.
    """
    if not isinstance(value, Mapping):
        return {}
    texts = [
        (name, text)
        for name, text in value.items()
        if is_text(text) and is_text(name) and len(name) + len(text) <= _KEPT_CHARS_MAX
    ]
    return dict(sorted(texts)[:_KEPT_MAX])
