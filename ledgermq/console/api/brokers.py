"""Broker groups, their members, and the settings of these."""

import asyncio
from typing import Final

from ledgermq.console.absent import missing
from ledgermq.console.call import Call, matching, ordered, page_of
from ledgermq.console.cluster import Target
from ledgermq.console.looks import Look, Looks, read_settings
from ledgermq.console.sampler import Sampler, behind_bytes
from ledgermq.console.settings import shown_value
from ledgermq.console.shapes import brokers as shapes
from ledgermq.console.tally import Tally
from ledgermq.protocol.codes import RequestCode

_TIMELINE_MAX: Final = 100
# A member that is less behind than this has all: figures of members are not of one moment.
_COMPLETE_BYTES: Final = 1024 * 1024
_DISK_HIGH: Final = 0.85
_SYNC: Final = "SYNC_FLUSH"
# Keys that members of one group must have in common; all others may differ.
_OWN_KEYS: Final = frozenset(
    {
        "brokerId", "brokerIP1", "brokerIP2", "brokerRole", "listenPort", "fastListenPort",
        "haListenPort", "dLegerSelfId", "storePathRootDir", "storePathCommitLog",
        "storePathDLedgerCommitLog", "storePathConsumeQueue", "storePathIndex", "storeCheckpoint",
        "abortFile", "rocketmqHome", "startAcceptSendRequestTimeStamp", "brokerName",
        "clientCallbackExecutorThreads", "httpPort", "metricsPromExporterPort", "httpBindAddress",
    }
)  # fmt: skip
# A key that no broker of Apache's has.
_OF_LEDGERMQ: Final = "scrubBytesPerSecond"
# Keys that a running broker of LedgerMQ takes.
CHANGEABLE: Final = frozenset(
    {
        "brokerPermission", "defaultQueryMaxNum", "enablePropertyFilter", "fileReservedTime",
        "notifyConsumerIdsChangedEnable", "offsetCheckInSlave", "rejectTransactionMessage",
        "shortPollingTimeMills", "slaveReadEnable",
    }
)  # fmt: skip
# One of Apache's takes nearly all: those that are changed now and then.
_CHANGEABLE_OF_APACHE: Final = frozenset(
    {
        "autoCreateTopicEnable", "autoCreateSubscriptionGroup", "brokerPermission",
        "fileReservedTime", "deleteWhen", "maxMessageSize", "messageDelayLevel",
        "transactionTimeOut", "transactionCheckMax", "transactionCheckInterval", "traceOn",
        "diskMaxUsedSpaceRatio", "longPollingEnable", "slaveReadEnable",
    }
)  # fmt: skip


async def get_broker_groups(call: Call) -> shapes.BrokerGroups:
    """All broker groups."""
    looks = await call.sampler.looker.look(call.now_ms)
    groups = await asyncio.gather(
        *(group_shape(call.sampler, looks, name, call.now_ms) for name in sorted(looks.groups))
    )
    return shapes.BrokerGroups(broker_groups=groups, answers=looks.tally.answers())


async def get_broker_group(call: Call) -> shapes.BrokerGroup:
    """One broker group."""
    looks = await call.sampler.looker.look(call.now_ms)
    if call.path["broker"] not in looks.groups:
        raise missing("broker", call.path["broker"])
    return await group_shape(call.sampler, looks, call.path["broker"], call.now_ms)


async def group_shape(sampler: Sampler, looks: Looks, name: str, now_ms: int) -> shapes.BrokerGroup:
    """Returns a broker group as it was seen."""
    members = looks.groups[name]
    settings = await sampler.looker.settings(name, members)
    leader = next((look for look in members if look.leads), None)
    durability = _durability(members, settings)
    figures = [look.figures for look in members if look.figures is not None]
    kind: shapes.GroupKind = "ledger" if any(one.role for one in figures) else "plain"
    return shapes.BrokerGroup(
        name=name,
        kind=kind if figures else "unknown",
        state=state_of(members, durability),
        leader=None if leader is None else leader.name,
        term=None if leader is None or leader.figures is None else leader.figures.term,
        members=[_member(members, look, sampler.pace.get(name)) for look in members],
        durability=durability,
        timeline=sampler.view.timeline.recent(0, name)[:_TIMELINE_MAX],
    )


def state_of(members: list[Look], durability: shapes.Durability) -> shapes.State:
    """Returns how a broker group is."""
    if not any(look.leads for look in members) or durability.may_lose < 0:
        return "critical"
    alarmed = any(look.figures is not None and look.figures.alarms for look in members)
    if alarmed or any(not look.helps for look in members):
        return "warning"
    full = any(
        look.figures is not None and (look.figures.disk_used_ratio or 0) >= _DISK_HIGH
        for look in members
    )
    return "warning" if full else "ok"


def _member(members: list[Look], look: Look, pace: float | None) -> shapes.Member:
    figures = look.figures
    behind = 0 if look.leads else behind_bytes(members, look)
    behind_s = None
    if behind is not None:
        behind_s = 0.0 if behind == 0 else behind / pace if pace else None
    return shapes.Member(
        broker_id=look.broker_id,
        member=look.name,
        address=look.address,
        role=look.role,
        is_answering=figures is not None,
        reason=look.reason,
        last_answer_ms=look.last_answer_ms,
        answer_ms=look.answer_ms,
        term=figures.term if figures else None,
        log_begin=figures.log_begin if figures else None,
        log_end=figures.log_end if figures else None,
        behind_bytes=behind,
        behind_s=behind_s,
        dispatch_behind_bytes=figures.dispatch_behind if figures else None,
        in_per_s=figures.in_per_s if figures else None,
        out_per_s=figures.out_per_s if figures else None,
        disk_used_ratio=figures.disk_used_ratio if figures else None,
        disk_free_bytes=figures.disk_free_bytes if figures else None,
        oldest_ms=figures.oldest_ms if figures else None,
        version=figures.version if figures else "",
        started_ms=figures.started_ms if figures else None,
        repair=figures.repair if figures else "",
        alarms=figures.alarms if figures else [],
    )


def _durability(members: list[Look], settings: dict[str, str]) -> shapes.Durability:
    flush = settings.get("flushDiskType")
    is_ledger = any(look.figures is not None and look.figures.role for look in members)
    count = len(members)
    majority = count // 2 + 1 if is_ledger else 1
    helping = [look for look in members if look.helps]
    complete = sum(
        look.leads or (behind is not None and behind <= _COMPLETE_BYTES)
        for look in helping
        for behind in [behind_bytes(members, look)]
    )
    has_leader = any(look.leads for look in members)
    where = "disks" if flush == _SYNC else "memory"
    if flush is None:
        code, text = "unknown", "the account may not read the settings that say it"
    elif is_ledger:
        code = "majority_synced" if flush == _SYNC else "majority_memory"
        text = f"an acknowledged message is in the {where} of {majority} of {count} members"
    else:
        code = "one_synced" if flush == _SYNC else "one_memory"
        text = f"an acknowledged message is in the {where} of the master"
    if flush is not None and flush != _SYNC:
        text += "; a power cut of all at once loses the last moments"
    elif flush is not None:
        text += "; a power cut of all at once loses nothing acknowledged"
    return shapes.Durability(
        code=code,
        text=text,
        flush=flush,
        members=count,
        majority=majority,
        complete=complete,
        may_lose=(len(helping) if has_leader else min(len(helping), majority - 1)) - majority,
    )


async def get_configuration(call: Call) -> shapes.Configuration:
    """Settings in force at the members, with differences inside of a broker group."""
    query, view, tally = call.asks(shapes.ConfigurationQuery), call.cluster, Tally()
    targets = [
        target for target in await view.everybody() if query.broker_group in ("", target.name)
    ]
    found = await view.each(
        tally, targets, RequestCode.GET_BROKER_CONFIG, read=lambda answer: read_settings(answer)
    )
    keys = sorted({key for _, settings in found for key in settings})
    rows = [_setting(key, found) for key in matching(keys, query.filter)]
    rows = [row for row in rows if row.differs or not query.differs]
    rows = ordered(rows, lambda row: row.key, query.order)
    return shapes.Configuration(
        members=[target.address for target, _ in found],
        settings=list(page_of(rows, query)),
        total=len(rows),
        answers=tally.answers(),
    )


def _setting(key: str, found: list[tuple[Target, dict[str, str]]]) -> shapes.Setting:
    by_group: dict[str, set[str | None]] = {}
    for target, settings in found:
        by_group.setdefault(target.name, set()).add(_without_root(settings, key))
    differs = key not in _OWN_KEYS and any(len(values) > 1 for values in by_group.values())
    values = [
        shapes.SettingValue(member=target.address, value=shown_value(key, settings.get(key)))
        for target, settings in found
    ]
    changeable = all(_is_changeable(key, settings) for _, settings in found if key in settings)
    return shapes.Setting(key=key, values=values, differs=differs, changeable=changeable)


def _is_changeable(key: str, settings: dict[str, str]) -> bool:
    return key in (CHANGEABLE if _OF_LEDGERMQ in settings else _CHANGEABLE_OF_APACHE)


def _without_root(settings: dict[str, str], key: str) -> str | None:
    """Files of members lie below folders of their own; what is alike below them is alike."""
    value, root = settings.get(key), settings.get("storePathRootDir")
    return value.replace(root, "*") if value and root and len(root) > 1 else value
