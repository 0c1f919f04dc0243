"""Producers and consumers of a cluster."""

import asyncio
from typing import ClassVar, Final, NamedTuple

import msgspec

from ledgermq.console.answers import NAMES_MAX, check_objects
from ledgermq.console.call import Call, ordered, page_of
from ledgermq.console.cluster import ClusterView
from ledgermq.console.group_members import AllMembers, load_all_members
from ledgermq.console.shapes import groups as shapes
from ledgermq.console.tally import Tally
from ledgermq.console.versions import is_outdated, version_name
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers.header import Int32
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody

_AGE_S: Final = 30.0
# Brokers before 4.9.8 do not know the question.
_NOT_TOLD: Final = frozenset({int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)})


class _Client(NamedTuple):
    client_id: str
    address: str
    language: str
    version: int
    kinds: set[str]
    groups: set[str]


async def get_clients(call: Call) -> shapes.Clients:
    """A page of clients."""
    query = call.asks(shapes.ClientsQuery)
    (members, members_age_s), (producers, producers_age_s) = await asyncio.gather(
        load_all_members(call.cluster), _load_producers(call.cluster)
    )
    clients = _joined(members, producers)
    wanted = query.filter.casefold()
    rows = [
        _row(one)
        for one in clients.values()
        if (not query.kind or query.kind in one.kinds) and _fits(one, wanted)
    ]
    rows = ordered(rows, lambda row: (getattr(row, query.sort), row.client_id), query.order)
    return shapes.Clients(
        rows=list(page_of(rows, query)),
        total=len(rows),
        groups_asked=len(members.by_group),
        groups=members.groups,
        producers_told=producers.is_told,
        age_s=max(members_age_s, producers_age_s),
        answers=members.tally.answers(),
    )


class _Producer(JsonBody, frozen=True):
    """ProducerInfo: a client that sends."""

    client_id: str | None = None
    remote_address: str | None = msgspec.field(name="remoteIP", default=None)
    language: str | None = None
    version: Int32 | None = None


class _ProducerTable(JsonBody, frozen=True):
    """ProducerTableInfo: producer group -> clients (328)."""

    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    data: dict[str, list[_Producer]] | None = None


class _Producers(NamedTuple):
    """Producer group -> what brokers say of its clients."""

    by_group: dict[str, list[_Producer]]
    is_told: bool


async def _load_producers(view: ClusterView) -> tuple[_Producers, float]:
    async def load() -> _Producers:
        tally = Tally()
        found = await view.each(
            tally,
            await view.leaders(tally),
            RequestCode.GET_ALL_PRODUCER_INFO,
            read=_read_producers,
            empty_codes=_NOT_TOLD,
        )
        by_group: dict[str, list[_Producer]] = {}
        for _, table in found:
            for group, clients in table.items():
                by_group.setdefault(group, []).extend(clients)
        return _Producers(by_group, bool(found))

    return await view.load("producers", _AGE_S, load)


def _read_producers(answer: RemotingCommand) -> dict[str, list[_Producer]]:
    check_objects(answer.body, NAMES_MAX)
    return _ProducerTable.decode(answer.body).data or {}


def _joined(members: AllMembers, producers: _Producers) -> dict[str, _Client]:
    found: dict[str, _Client] = {}
    for group, told in members.by_group.items():
        for client, _ in told.clients.values():
            one = found.setdefault(
                client.client_id,
                _Client(
                    client.client_id,
                    client.client_addr,
                    client.language,
                    client.version,
                    set(),
                    set(),
                ),
            )
            one.kinds.add("consumer")
            one.groups.add(group)
    for group, clients in producers.by_group.items():
        for told_client in clients:
            client_id = told_client.client_id or ""
            one = found.setdefault(
                client_id,
                _Client(
                    client_id,
                    told_client.remote_address or "",
                    told_client.language or "",
                    -1 if told_client.version is None else told_client.version,
                    set(),
                    set(),
                ),
            )
            one.kinds.add("producer")
            one.groups.add(group)
    return found


def _fits(one: _Client, wanted: str) -> bool:
    return (
        not wanted
        or wanted in one.client_id.casefold()
        or wanted in one.address
        or any(wanted in group.casefold() for group in one.groups)
    )


def _row(one: _Client) -> shapes.ClientRow:
    return shapes.ClientRow(
        client_id=one.client_id,
        address=one.address,
        language=one.language,
        version=version_name(one.version),
        outdated=is_outdated(one.version),
        kinds=sorted(one.kinds),
        groups=sorted(one.groups),
    )
