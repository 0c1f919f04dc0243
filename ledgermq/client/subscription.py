"""What of a topic is wanted: tags, or an SQL92 condition over properties.

Brokers compare hashes of tags, so a client looks at the tags of what it gets once more; an SQL
condition is the broker's business alone (`enablePropertyFilter=true`).
"""

from typing import Final, NamedTuple

from ledgermq.client.errors import ConfigError
from ledgermq.client.namespaces import with_namespace
from ledgermq.protocol.heartbeat import SubscriptionData
from ledgermq.protocol.java_hash import java_string_hash

_TAG: Final = "TAG"
_SQL: Final = "SQL92"


def tags_of(expression: str) -> frozenset[str]:
    """Returns the tags of an expression such as ``A || B``; empty for ``*``, which means all."""
    if expression.strip() in ("", "*"):
        return frozenset()
    return frozenset(tag.strip() for tag in expression.split("||") if tag.strip())


class Expression(NamedTuple):
    """One expression."""

    text: str = "*"
    # As on the wire: TAG or SQL92.
    kind: str = _TAG

    @property
    def tags(self) -> frozenset[str]:
        """The tags that are wanted; empty when it does not go by tags, or all are."""
        return tags_of(self.text) if self.kind == _TAG else frozenset()


EVERYTHING: Final = Expression()


def expression_of(tags: str, sql: str | None) -> Expression:
    """Returns the expression that a user gave as tags or as an SQL condition.

    Raises:
        ConfigError: both are given.
    """
    if sql is None:
        return Expression(tags)
    if tags_of(tags):
        raise ConfigError("tags and sql exclude each other")
    if not sql.strip():
        raise ConfigError("sql must not be empty")
    return Expression(sql, _SQL)


def subscription_of(
    topic: str, expression: Expression, version: int, namespace: str = ""
) -> SubscriptionData:
    """Returns what a heartbeat says of a subscription.

    Args:
        topic: its name.
        expression: what of it is wanted.
        version: grows with each change; a broker forgets older ones.
        namespace: of the consumer.
    """
    return SubscriptionData(
        topic=with_namespace(namespace, topic),
        sub_string=expression.text,
        sub_version=version,
        tags_set=expression.tags,
        code_set=frozenset(map(java_string_hash, expression.tags)),
        expression_type=expression.kind,
    )
