"""Bindings: which shared queues get what is published, as the name servers' table tells it. Pure.

The table has an item for each shared queue, for each binding of one, and for each exchange that
some process has bound a queue of its own to. Such an exchange has its messages written once to the
topic of mail, where each process picks what its own queues are bound for: nothing of a process that
dies stays in the table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ledgermq.celery.foreign import read_object
from ledgermq.celery.names import item_key

DIRECT: Final = "direct"
TOPIC: Final = "topic"
FANOUT: Final = "fanout"


@dataclass(slots=True, frozen=True)
class Binding:
    """What a queue wants of an exchange."""

    exchange: str
    # direct, topic or fanout
    kind: str
    # Of a topic exchange a pattern: `*` is one word, `#` any number.
    routing_key: str

    def wants(self, exchange: str, routing_key: str) -> bool:
        """Tells whether a message is for the queue."""
        if exchange != self.exchange:
            return False
        if self.kind == FANOUT:
            return True
        if self.kind == TOPIC:
            return _matches(self.routing_key.split("."), routing_key.split("."))
        return routing_key == self.routing_key


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Tells whether words are of a pattern of words."""
    # Which counts of words the pattern so far can stand for: no pattern takes more than the product
    # of the two lengths.
    reached = {0}
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {
                place + 1 for place in reached if place < len(words) and part in ("*", words[place])
            }
        if not reached:
            return False
    return len(words) in reached


class Bindings:
    """The table as it was last read, and the items to write."""

    def __init__(self, items: Mapping[str, str] | None = None) -> None:
        """Reads the items of a name server; what is not understood is left out."""
        self.queues: set[str] = set()
        # Exchange -> its kind, of those with queues of a process.
        self.mailed: dict[str, str] = {}
        self._bound: dict[str, list[tuple[Binding, str]]] = {}
        for text in (items or {}).values():
            try:
                self._add(read_object(text))
            except (ValueError, TypeError, KeyError):
                continue

    def _add(self, item: Mapping[str, Any]) -> None:
        if not all(isinstance(value, str) for value in item.values()):
            raise TypeError("a member is no text")
        if "queue" not in item:
            self.mailed[item["exchange"]] = item["kind"]
        elif "exchange" not in item:
            self.queues.add(item["queue"])
        else:
            binding = Binding(item["exchange"], item["kind"], item["key"])
            self._bound.setdefault(binding.exchange, []).append((binding, item["queue"]))

    def kind_of(self, exchange: str) -> str | None:
        """Returns the kind of an exchange, when anything is bound to it."""
        if exchange in self.mailed:
            return self.mailed[exchange]
        bound = self._bound.get(exchange)
        return bound[0][0].kind if bound else None

    def queues_for(self, exchange: str, routing_key: str) -> list[str]:
        """Returns the shared queues that a message is for, sorted."""
        bound = self._bound.get(exchange, ())
        return sorted({queue for binding, queue in bound if binding.wants(exchange, routing_key)})

    def bindings_of(self, queue: str) -> list[Binding]:
        """Returns what a shared queue is bound to."""
        return [
            binding for bound in self._bound.values() for binding, name in bound if name == queue
        ]


def queue_item(queue: str) -> tuple[str, str]:
    """Returns key and text of the item of a shared queue."""
    return item_key("q", queue), json.dumps({"queue": queue})


def binding_item(queue: str, binding: Binding) -> tuple[str, str]:
    """Returns key and text of the item of a binding of a shared queue."""
    fields = {
        "queue": queue,
        "exchange": binding.exchange,
        "kind": binding.kind,
        "key": binding.routing_key,
    }
    return item_key("b", queue, binding.exchange, binding.routing_key), json.dumps(fields)


def mail_item(exchange: str, kind: str) -> tuple[str, str]:
    """Returns key and text of the item of an exchange with queues of processes."""
    return item_key("m", exchange), json.dumps({"exchange": exchange, "kind": kind})
