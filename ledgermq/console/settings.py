"""Settings as they are shown: a secret is none of them."""

from typing import Final

_SECRET_WORDS: Final = ("password", "secret", "token")
HIDDEN: Final = "********"


def shown_value(key: str, value: str | None) -> str | None:
    """Returns a value, or asterisks for what is a secret."""
    is_secret = any(word in key.lower() for word in _SECRET_WORDS)
    return HIDDEN if is_secret and value and not key.lower().endswith("file") else value
