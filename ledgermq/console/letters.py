"""What became of dead letters: sent anew, dropped, or neither."""

import asyncio
from typing import Final

from ledgermq.client.admin.admin_client import AdminClient
from ledgermq.client.errors import ClientError, RefusedError
from ledgermq.console.cluster import ClusterView
from ledgermq.console.messages import TOOLS_GROUP
from ledgermq.console.shapes import messages as shapes
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)

# Of one page's letters: each is a few requests to the brokers.
_LOOKED_AT_ONCE: Final = 8


async def done_before(view: ClusterView, address: str, queue: MessageQueue) -> int:
    """Returns the offset before which all dead letters of a queue are dealt with; 0: nobody knows.

    Raises:
        ClientError, ProtocolError: the broker does not answer, or refuses.
    """
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=TOOLS_GROUP, topic=queue.topic, queue_id=queue.queue_id
    )
    answer = await view.remote.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return 0
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedError(answer.code, answer.remark, broker=address)
    return max(answer.header(QueryConsumerOffsetResponseHeader).offset, 0)


async def with_states(
    view: ClusterView, group: str, rows: list[shapes.MessageRow], *, ask: bool
) -> list[shapes.Letter]:
    """Returns rows with what became of each; None where that is not asked or nobody tells."""
    states: dict[str, str] = {}
    if ask and rows:
        async with AdminClient(view.remote.name_servers, config=view.remote.config) as admin:
            room = asyncio.Semaphore(_LOOKED_AT_ONCE)

            async def look(place: str) -> None:
                async with room:
                    try:
                        for letter in await admin.dead_letter(group, place):
                            states[letter.id] = letter.state
                    except ClientError:
                        # It has gone meanwhile, or its broker has: the row stands without a word.
                        return

            await asyncio.gather(*(look(_place_of(row)) for row in rows))
    return [
        shapes.Letter(
            **{name: getattr(row, name) for name in row.__struct_fields__},
            state=states.get(_place_of(row)),  # type: ignore[arg-type]
        )
        for row in rows
    ]


def _place_of(row: shapes.MessageRow) -> str:
    return f"{row.broker}/{row.queue}/{row.offset}"
