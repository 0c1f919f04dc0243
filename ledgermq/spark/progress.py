"""The lag of a streaming query: how many messages its topics hold that it has not read yet."""

import json
from collections.abc import Mapping
from typing import Any

from ledgermq.client import MessageQueue
from ledgermq.spark.offsets import from_document


def lag_of(progress: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Returns how far each queue goes beyond what a query has read of it.

    Args:
        progress: what Spark tells of a query, as `query.lastProgress`, or as its JSON was read.

    Returns:
        Messages by queue; tags and keys that the query selects by are not looked at. A queue that
        the query has not entered yet counts from its offset 0. Sources of other kinds are left
        out, and so is one whose latest offset Spark did not ask for.
    """
    lags: dict[MessageQueue, int] = {}
    for source in progress.get("sources", ()):
        ends, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        for queue, offset in latest.items():
            # Read since Spark asked for the latest: nothing is left.
            lags[queue] = max(0, offset - ends.get(queue, 0))
    return lags


def _offsets(found: object) -> dict[MessageQueue, int]:
    """Returns the offsets of a queue's document; none of what another source has there."""
    try:
        return from_document(json.loads(found) if isinstance(found, str) else found)
    except ValueError:
        return {}
