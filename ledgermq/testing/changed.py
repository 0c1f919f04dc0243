"""A message of the ledger with other values in some of its fields."""

from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

_M = TypeVar("_M")


def changed(message: _M, **fields: Any) -> _M:
    """Returns a copy, whichever way messages of its kind are made."""
    if isinstance(message, msgspec.Struct):
        return cast(_M, msgspec.structs.replace(message, **fields))
    return cast(_M, replace(cast(Any, message), **fields))
