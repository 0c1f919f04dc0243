"""Which messages of a topic a consumer wants: subscriptions, and the match by tags code.

Pure. A tag expression is `*`, or tags joined by `||`; the broker compares hash codes only and the
client compares the texts.
Source: `FilterAPI.java`, `DefaultMessageFilter.java`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ledgermq.broker.errors import InvalidRequestError, SubscriptionParseError
from ledgermq.protocol.java_hash import java_string_hash

ALL_TAGS: Final = "*"
TAG_TYPE: Final = "TAG"
_EXPRESSION_CHARS_MAX: Final = 65_536

# True for the tags code of a message that may be wanted.
Matcher = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one group wants of one topic."""

    topic: str
    # The text as the client gave it.
    expression: str
    # TAG or SQL92; other kinds of 5.x are kept as text.
    expression_type: str
    # Time at which the client made it; a newer one replaces an older.
    version: int
    tags: tuple[str, ...] = ()
    # Java hash codes of the tags; empty means every message.
    tags_codes: frozenset[int] = frozenset()
    # Filter servers of old brokers; kept and shown, not supported.
    is_class_filter: bool = False

    @property
    def is_by_tags(self) -> bool:
        """True when the broker can apply the expression."""
        return self.expression_type == TAG_TYPE

    @property
    def matcher(self) -> Matcher | None:
        """What a read of the queue asks for each message, None when every message is wanted."""
        if self.expression == ALL_TAGS or not self.tags_codes:
            return None
        return self.tags_codes.__contains__


def expression_type_of(text: str | None) -> str:
    """Returns the kind of an expression; absent or empty means TAG."""
    return text or TAG_TYPE


def subscription_of(
    topic: str, expression: str | None, expression_type: str | None, version: int
) -> Subscription:
    """Builds a subscription from the fields of a pull.

    Raises:
        SubscriptionParseError: the expression is not one of tags.
        InvalidRequestError: the expression is of a kind that this broker does not apply.
    """
    kind = expression_type_of(expression_type)
    check_supported(kind)
    text = expression or ALL_TAGS
    if len(text) > _EXPRESSION_CHARS_MAX:
        raise SubscriptionParseError(
            f"the subscription of topic[{topic}] has {len(text)} characters,"
            f" allowed are {_EXPRESSION_CHARS_MAX}"
        )
    if text == ALL_TAGS:
        return Subscription(topic, ALL_TAGS, kind, version)
    tags = split_tags(text)
    if not tags:
        raise SubscriptionParseError("parse the consumer's subscription failed: no tag in it")
    return Subscription(topic, text, kind, version, tags, codes_of(tags))


def check_supported(expression_type: str) -> None:
    """Raises InvalidRequestError for an expression that is not one of tags."""
    if expression_type != TAG_TYPE:
        raise InvalidRequestError(
            "The broker does not support consumer to filter message by "
            f"{expression_type[:32]}; this release filters by tags only"
        )


def split_tags(expression: str) -> tuple[str, ...]:
    """Returns the tags of an expression, each once, in order; blanks around them do not count."""
    parts = (part.strip() for part in expression.split("||"))
    return tuple(dict.fromkeys(part for part in parts if part))


def codes_of(tags: Iterable[str]) -> frozenset[int]:
    """Returns the tags codes of some tags."""
    return frozenset(java_string_hash(tag) for tag in tags)
