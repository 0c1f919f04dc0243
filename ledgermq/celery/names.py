"""Names of topics for names of queues, and tags that brokers can select by.

A queue of Celery may be called anything, a topic is letters, digits, `_` and `-`, and not long. A
name that fits stays readable; any other is cut, what does not fit becomes `_`, and a hash of the
whole name keeps different ones apart.
"""

import hashlib
import re
from typing import Final

# The group in whose name offsets are told, so that tools see how far a queue is done.
GROUP: Final = "kombu"
# The messages of all exchanges for queues that end with their process.
MAIL_TOPIC: Final = "kombu_mail"

_LEGAL: Final = re.compile(r"[A-Za-z0-9_-]+")
# With a prefix, and a namespace of 30 characters, below the 127 that a topic may have.
_NAME_MAX: Final = 80
_READABLE_MAX: Final = 47


def task_topic(queue: str) -> str:
    """Returns the topic of the messages of a shared queue."""
    return f"kombu_q_{_legal(queue)}"


def claims_topic(queue: str) -> str:
    """Returns the topic of the log of a shared queue: who works on what."""
    return f"kombu_c_{_legal(queue)}"


def mail_tag(exchange: str, kind: str, routing_key: str) -> str:
    """Returns the tag of what is published.

    By it brokers leave out what a queue does not want. The key of a direct exchange is in it; what
    a topic or fanout exchange is for is told by its name alone.
    """
    wanted = f"{exchange}\0{routing_key}" if kind == "direct" else exchange
    return f"{kind[0]}{_hash(wanted, 16)}"


def item_key(kind: str, *parts: str) -> str:
    """Returns the name of an item in the name server's table."""
    whole = "\0".join(parts)
    return f"{kind}-{_hash(whole, 32)}"


def _legal(name: str) -> str:
    if len(name) <= _NAME_MAX and _LEGAL.fullmatch(name) and not _looks_hashed(name):
        return name
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name[:_READABLE_MAX])}-{_hash(name, 32)}"


def _looks_hashed(name: str) -> bool:
    """Tells whether a legal name could be the one that another name is given."""
    return re.search(r"-[0-9a-f]{32}$", name) is not None


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
