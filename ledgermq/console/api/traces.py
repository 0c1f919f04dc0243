"""The way of a message, as the traces of its clients tell it."""

import asyncio
from typing import Final, Literal

from ledgermq.client.trace_reading import TraceRow, read_traces
from ledgermq.console.call import Call
from ledgermq.console.messages import body_of, find_by_key, row_of, shown_host
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import Tally
from ledgermq.protocol.errors import RemoteProtocolError

_KINDS: Final[dict[str, Literal["sent", "delivered", "ended"]]] = {
    "Pub": "sent",
    "Sub": "delivered",
    "EndTransaction": "ended",
}
_ENDS: Final = {"COMMIT_MESSAGE": "commit", "ROLLBACK_MESSAGE": "rollback"}
_STEPS_MAX: Final = 1_000
# Clients write up to 128 KB.
_TRACE_BYTES_MAX: Final = 256 * 1024


async def get_trace(call: Call) -> shapes.Trace:
    """The way of a message."""
    view, tally = call.cluster, Tally()
    query, message_id = call.asks(shapes.TraceQuery), call.path["message_id"]
    topics = (await view.topics()).by_name
    steps: list[shapes.TraceStep] = []
    for trace in (
        await find_by_key(
            view,
            tally,
            await view.leaders(tally, sorted(topics[query.trace_topic])),
            query.trace_topic,
            message_id,
            is_unique=False,
        )
        if query.trace_topic in topics
        else []
    ):
        try:
            body = body_of(trace, _TRACE_BYTES_MAX)
            rows = read_traces(message_id, body, shown_host(trace.record.born_host))
        except RemoteProtocolError:
            continue
        steps += [_step(row) for row in rows]
        # There may be many of them.
        await asyncio.sleep(0)
    found = None
    if query.topic in topics:
        targets = await view.leaders(tally, sorted(topics[query.topic]))
        own = await find_by_key(view, tally, targets, query.topic, message_id, is_unique=True)
        if own:
            found = row_of(own[0])
            steps.append(
                shapes.TraceStep(
                    kind="stored",
                    group="",
                    client=shown_host(own[0].record.store_host),
                    at_ms=own[0].store_timestamp_ms,
                    cost_ms=None,
                    status="success",
                    retries=None,
                )
            )
    steps.sort(key=lambda step: step.at_ms)
    return shapes.Trace(
        message_id=message_id, message=found, steps=steps[:_STEPS_MAX], answers=tally.answers()
    )


def _step(row: TraceRow) -> shapes.TraceStep:
    return shapes.TraceStep(
        kind=_KINDS.get(row.kind, "delivered"),
        group=row.group,
        client=row.client,
        at_ms=row.time_ms,
        cost_ms=row.cost_ms,
        status=_ENDS.get(row.status, row.status),
        retries=None,
    )
