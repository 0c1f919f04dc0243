"""Which messages of a topic a consumer wants: subscriptions, the match by tags code or properties.

Pure. A tag expression is `*`, or tags joined by `||`; the broker compares hash codes only and the
client compares the texts. A SQL92 expression is over the message's properties (`sql_filter.py`).
Source: `FilterAPI.java`, `DefaultMessageFilter.java`, `ConsumerFilterManager.java`.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ledgermq.protocol.java_hash import java_string_hash
from ledgermq.state.errors import InvalidRequestError, SubscriptionParseError

ALL_TAGS: Final = "*"
TAG_TYPE: Final = "TAG"
SQL_TYPE: Final = "SQL92"
# A pull may bring an expression of tags with it, whose hashes are made for it.
EXPRESSION_CHARS_MAX: Final = 16_384
TAGS_MAX: Final = 1000

# True for the tags code of a message that may be wanted.
Matcher = Callable[[int], bool]
# True for the properties of a message that is wanted.
PropertyMatcher = Callable[[Mapping[str, str]], bool]


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
    def matcher(self) -> Matcher | None:
        """What a read of the queue asks for each message, None when every message is wanted."""
        if self.expression == ALL_TAGS or not self.tags_codes or self.expression_type != TAG_TYPE:
            return None
        return self.tags_codes.__contains__

    def find_property_matcher(self) -> PropertyMatcher | None:
        """Returns what tells whether properties match a SQL92 expression; None for other kinds, and
        for one that does not parse.

        Compiled when it is asked for, and kept among the last ones by all: a heart beat may bring
        hundreds that no pull ever needs.
        """
        if self.expression_type != SQL_TYPE:
            return None
        try:
            return _compile_sql(self.expression)
        except SubscriptionParseError:
            # The group is registered all the same; its pulls are refused.
            return None


def expression_type_of(text: str | None) -> str:
    """Returns the kind of an expression; absent or empty means TAG."""
    return text or TAG_TYPE


def subscription_of(
    topic: str,
    expression: str | None,
    expression_type: str | None,
    version: int,
    *,
    is_sql_on: bool = False,
) -> Subscription:
    """Builds a subscription from the fields of a pull.

    Raises:
        SubscriptionParseError: the expression does not parse.
        InvalidRequestError: the expression is of a kind that this broker does not apply.
    """
    kind = expression_type_of(expression_type)
    check_supported(kind, is_sql_on)
    if kind == SQL_TYPE:
        text = expression or ""
        _compile_sql(text)
        return Subscription(topic, text, kind, version)
    text = expression or ALL_TAGS
    if len(text) > EXPRESSION_CHARS_MAX:
        raise SubscriptionParseError(
            f"the subscription of topic[{topic}] has {len(text)} characters,"
            f" allowed are {EXPRESSION_CHARS_MAX}"
        )
    if text == ALL_TAGS:
        return Subscription(topic, ALL_TAGS, kind, version)
    tags_count = 1 + text.count("||")
    if tags_count > TAGS_MAX:
        raise SubscriptionParseError(
            f"the subscription of topic[{topic}] has {tags_count} tags, allowed are {TAGS_MAX}"
        )
    tags = split_tags(text)
    if not tags:
        raise SubscriptionParseError("parse the consumer's subscription failed: no tag in it")
    return Subscription(topic, text, kind, version, tags, codes_of(tags))


def check_supported(expression_type: str, is_sql_on: bool) -> None:
    """Checks that this broker applies expressions of a kind.

    Raises:
        InvalidRequestError: it does not.
    """
    if expression_type == TAG_TYPE or (expression_type == SQL_TYPE and is_sql_on):
        return
    reason = "enablePropertyFilter is false" if expression_type == SQL_TYPE else "unknown kind"
    raise InvalidRequestError(
        "The broker does not support consumer to filter message by "
        f"{expression_type[:32]}: {reason}"
    )


def _compile_sql(expression: str) -> PropertyMatcher:
    """Loads the language with the first expression: most brokers never see one."""
    sql_filter = importlib.import_module("ledgermq.broker.selectors.sql_filter")
    matcher: PropertyMatcher = sql_filter.compile_sql(expression)
    return matcher


def split_tags(expression: str) -> tuple[str, ...]:
    """Returns the tags of an expression, each once, in order; blanks around them do not count."""
    parts = (part.strip() for part in expression.split("||"))
    return tuple(dict.fromkeys(part for part in parts if part))


def codes_of(tags: Iterable[str]) -> frozenset[int]:
    """Returns the tags codes of some tags."""
    return frozenset(java_string_hash(tag) for tag in tags)
