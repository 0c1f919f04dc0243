"""Which topics a consumer wants: one, several, or all whose names match a pattern.

    "orders"   ["orders", "bills"]   {"orders": "new || paid", "bills": "*"}   re.compile("shop-.*")

The topics of a pattern are looked for again and again. One that is new begins at its first message,
wherever the others began: what was sent before it was found must not be missed. One that is missing
in a single list stays: a name server that just started does not know all of them yet.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from ledgermq.client.errors import ConfigError
from ledgermq.client.namespaces import SEPARATOR, is_system_name
from ledgermq.client.subscription import Expression, expression_of

# A name, several, several each with its tags, or a pattern that whole names match.
Topics: TypeAlias = str | Sequence[str] | Mapping[str, str] | re.Pattern[str]

# A consumer asks for the members of its group topic by topic.
TOPICS_MAX: Final = 1000
# Lists in a row without a topic, before it is given up.
_MISSES_MAX: Final = 3


class WantedTopics:
    """The topics of one consumer, and what of each is wanted."""

    def __init__(self, topics: Topics, tags: str, sql: str | None) -> None:
        """Takes what a program gave.

        Raises:
            ConfigError: there is no topic, or tags are given twice.
        """
        expression = expression_of(tags, sql)
        self.pattern: re.Pattern[str] | None = None
        self._expression = expression
        self._misses: dict[str, int] = {}
        if isinstance(topics, re.Pattern):
            self.pattern = topics
            self.by_name: dict[str, Expression] = {}
            return
        if isinstance(topics, Mapping):
            if expression != Expression():
                raise ConfigError("tags are given for each topic: leave tags and sql out")
            self.by_name = {name: Expression(tags) for name, tags in topics.items()}
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            self.by_name = dict.fromkeys(names, expression)
        for name in self.by_name:
            if not isinstance(name, str) or not name:
                raise ConfigError(f"topic must not be empty; one of them is {name!r}")
        if not 0 < len(self.by_name) <= TOPICS_MAX:
            raise ConfigError(f"{len(self.by_name)} topics; allowed: 1 to {TOPICS_MAX}")

    def take(self, listed: Collection[str], namespace: str) -> bool:
        """Takes the names of all topics as a name server lists them.

        Args:
            listed: as on the wire; system topics, retry topics and those of other namespaces too.
            namespace: of the consumer.

        Returns:
            True when other topics are wanted than before.

        Raises:
            ConfigError: too many match; nothing has changed.
        """
        pattern = self.pattern
        if pattern is None:
            return False
        prefix = namespace + SEPARATOR if namespace else ""
        found = set()
        for wire_name in listed:
            name = wire_name.removeprefix(prefix)
            is_own = wire_name.startswith(prefix) and SEPARATOR not in name
            if is_own and not is_system_name(name) and pattern.fullmatch(name):
                found.add(name)
        if len(found) > TOPICS_MAX:
            raise ConfigError(
                f"{len(found)} topics match {pattern.pattern!r}; allowed: {TOPICS_MAX}"
            )
        before = set(self.by_name)
        for name in before - found:
            self._misses[name] = self._misses.get(name, 0) + 1
            if self._misses[name] >= _MISSES_MAX:
                del self.by_name[name], self._misses[name]
        for name in sorted(found):
            self._misses.pop(name, None)
            self.by_name.setdefault(name, self._expression)
        return set(self.by_name) != before
