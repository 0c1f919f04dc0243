"""AccessRecord: the rules of access control as the log has them, sealed. Pure.

The state does not know what they say: those that stand last in the log count. Whoever has the
secret of the group opens them, and compares them with the files of this member (`AccessRules`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ledgermq.state.document import Document
from ledgermq.state.json_values import INT64, is_whole

# The one entry of the table.
_NAME: Final = "record"


class AccessRecord:
    """A table of at most one entry."""

    def __init__(self) -> None:
        """There are none yet."""
        self.record: Mapping[str, Any] | None = None

    def put(self, record: Mapping[str, Any]) -> bool:
        """Takes over rules, unless they make no sense; returns whether they are other ones."""
        found = _understood(record)
        if found is None or found == self.record:
            return False
        self.record = found
        return True

    # As a table that is swept.

    def behind(self, after: str) -> Iterator[tuple[str, Any]]:
        """Yields the entry when its name is behind another one."""
        if self.record is not None and after < _NAME:
            yield _NAME, self.record

    def replace_range(self, after: str, upto: str | None, put: Mapping[str, Any]) -> bool:
        """Has exactly this entry, when a range has its name; returns whether it is another."""
        if not (after < _NAME and (upto is None or _NAME <= upto)):
            return False
        former, self.record = self.record, _understood(put.get(_NAME))
        return self.record != former

    def merge(self, put: Mapping[str, Any]) -> bool:
        """Nothing is ever added: an entry stands in one part."""
        return False

    # As a file.

    def document(self) -> Document:
        """Returns the content of accessRules.json."""
        return Document({}, (("table", self.behind),))

    def load_json(self, value: Mapping[str, Any]) -> None:
        """Takes over the content of accessRules.json."""
        table = value.get("table")
        self.record = _understood(table.get(_NAME)) if isinstance(table, Mapping) else None


def _understood(record: object) -> Mapping[str, Any] | None:
    """A record without what the log says beside it; None for one that makes no sense."""
    match record:
        case {"changed": changed, "sealed": str(sealed)} if (
            is_whole(changed, INT64) and sealed.isascii()
        ):
            return {"kind": "access", "changed": changed, "sealed": sealed}
    return None
