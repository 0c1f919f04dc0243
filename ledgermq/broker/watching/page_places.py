"""PagePlaces: of pages that are written part by part, few at once: each takes part of every turn.

One whose reader does not read keeps its place until the port closes its connection.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ledgermq.http.replies import RequestError

PLACES_MAX: Final = 4
# Of one address, or network.
PLACES_OF_ONE_MAX: Final = 2


class PagePlaces:
    """Who has a page written."""

    def __init__(self) -> None:
        # By address, or network.
        self._taken: Counter[str] = Counter()

    def written(self, source: str, parts: Iterator[bytes]) -> Iterator[bytes]:
        """Returns the parts of a page; its place is held until the last, or a close.

        Args:
            source: address, or network, that asks for it.
            parts: of the page.

        Raises:
            RequestError: 503, all places are taken, or all that one may have.
        """
        limits = ((self._taken.total(), PLACES_MAX), (self._taken[source], PLACES_OF_ONE_MAX))
        for count, limit in limits:
            if count >= limit:
                message = f"{limit} pages of metrics are being written; ask again"
                raise RequestError(503, message, field="pages", value=count, limit=limit)
        return self._counted(source, parts)

    def _counted(self, source: str, parts: Iterator[bytes]) -> Iterator[bytes]:
        self._taken[source] += 1
        try:
            yield from parts
        finally:
            self._taken[source] -= 1
            if not self._taken[source]:
                del self._taken[source]
