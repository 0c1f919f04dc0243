"""Searches, and one message with all that is known of it."""

import asyncio
from typing import Final, Literal

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView
from ledgermq.console.group_figures import load_stats
from ledgermq.console.group_members import load_members
from ledgermq.console.messages import (
    body_of,
    find_message,
    properties_of,
    row_of,
    shown_body,
    shown_host,
)
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.shapes.brokers import AuditEntry
from ledgermq.console.tally import Tally
from ledgermq.console.topic_figures import load_groups
from ledgermq.http.replies import RequestError
from ledgermq.protocol import properties as names
from ledgermq.protocol.errors import RemoteProtocolError

_GROUPS_MAX: Final = 100
_Transaction = Literal["not", "prepared", "committed", "rolled_back"]
_TRANSACTIONS: Final[dict[int, _Transaction]] = {
    0: "not", 0x4: "prepared", 0x8: "committed", 0xC: "rolled_back",
}  # fmt: skip


async def start_search(call: Call) -> shapes.Search:
    """Begins a search."""
    assert isinstance(call.body, shapes.SearchRequest)
    return call.searches.start(call.cluster, call.session, call.account, call.body)


async def get_search(call: Call) -> shapes.Search:
    """How far a search is."""
    after = call.asks(shapes.SearchQuery).after
    return call.searches.look(call.cluster.id, call.session, call.path["search"], after)


async def stop_search(call: Call) -> shapes.Search:
    """Stops a search."""
    return call.searches.stop(call.cluster.id, call.session, call.path["search"])


async def _found(call: Call) -> ReceivedMessage:
    path = call.path
    found = await find_message(
        call.cluster, path["topic"], path["broker"], call.number("queue"), call.number("offset")
    )
    call.audit.add(
        AuditEntry(
            at_ms=call.now_ms,
            account=call.account,
            address=call.peer,
            cluster=call.cluster.id,
            action="view_message",
            object=f"{path['topic']}/{path['broker']}/{path['queue']}/{path['offset']}",
            outcome="done",
            detail="",
            action_id="",
        )
    )
    return found


async def get_message(call: Call) -> shapes.MessageDetail:
    """One message."""
    tally = Tally()
    async with call.reading.turn(call.account):
        message = await _found(call)
        body = await call.searches.bodies.read(call.account, shown_body, message)
    record = message.record
    properties, is_readable = properties_of(message)
    view = call.cluster
    entries = (await view.topics()).by_name.get(record.topic, {})
    targets = await view.leaders(tally, sorted(entries)) if entries else []
    groups = sorted(await load_groups(view, tally, targets, record.topic))
    states = await asyncio.gather(
        *(_at_group(view, tally, message, group) for group in groups[:_GROUPS_MAX])
    )
    return shapes.MessageDetail(
        row=row_of(message),
        properties=properties,
        properties_readable=is_readable,
        body=body,
        physical_offset=record.physical_offset,
        record_bytes=record.size_bytes,
        flag=record.flag,
        sys_flag=record.sys_flag,
        transaction=_TRANSACTIONS[record.sys_flag & 0xC],
        delay_level=_number(properties.get(names.DELAY_TIME_LEVEL)) or 0,
        deliver_ms=_number(properties.get(names.TIMER_DELIVER_MS)),
        born_host=shown_host(record.born_host),
        store_host=shown_host(record.store_host),
        groups=list(states),
        groups_total=len(groups),
        answers=tally.answers(),
    )


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 19
    return int(text or "") if is_number else None


async def _at_group(
    view: ClusterView, tally: Tally, message: ReceivedMessage, group: str
) -> shapes.MessageAtGroup:
    stats, members = await asyncio.gather(
        load_stats(view, tally, group, message.record.topic), load_members(view, tally, group)
    )
    committed = next(
        (one.offsets.consumer_offset for one in stats if one.queue == message.queue), None
    )
    first = members.first
    wanted = None if first is None else first.subscription_table.get(message.record.topic)
    is_filtered = (
        wanted is not None
        and wanted.expression_type in ("", "TAG")
        and bool(wanted.tags_set)
        and properties_of(message)[0].get(names.TAGS, "") not in wanted.tags_set
    )
    if is_filtered:
        state: shapes.MessageState = "filtered"
    elif committed is None:
        state = "unknown"
    elif committed > message.queue_offset:
        state = "consumed"
    else:
        state = "waiting" if members.clients else "offline"
    return shapes.MessageAtGroup(group=group, state=state, committed=committed)


async def get_body(call: Call) -> bytes:
    """The body of a message."""
    async with call.reading.turn(call.account):
        message = await _found(call)
        try:
            # To inflate one takes up to 60 ms.
            return await call.searches.bodies.read(call.account, body_of, message)
        except RemoteProtocolError as error:
            code = "broken_body"
            raise RequestError(422, f"it cannot be decompressed: {error}", code=code) from error
