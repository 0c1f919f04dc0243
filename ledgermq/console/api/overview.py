"""The overview: is a cluster healthy, what does it do, what happened lately."""

import asyncio
from typing import Final

from ledgermq.console.api.brokers import group_shape
from ledgermq.console.call import Call, words_of
from ledgermq.console.group_figures import AllFigures
from ledgermq.console.history import STEP_S, UNITS
from ledgermq.console.looks import Looks
from ledgermq.console.sampler import Sampler
from ledgermq.console.shapes import brokers as shapes

_HOUR_MS: Final = 3_600_000
_TOP: Final = 10
_EVENTS_MAX: Final = 50
_DISK_HIGH: Final = 0.85
_DISK_FULL: Final = 0.95
_BEHIND_BYTES: Final = 64 * 1024 * 1024
_SEVERITIES: Final[tuple[shapes.Severity, ...]] = ("critical", "warning", "info")


async def get_overview(call: Call) -> shapes.Overview:
    """The overview."""
    view, sampler = call.cluster, call.sampler
    sampler.watched()
    looks, topics, groups = await asyncio.gather(
        sampler.looker.look(call.now_ms), view.topics(), view.groups()
    )
    broker_groups = await asyncio.gather(
        *(group_shape(sampler, looks, name, call.now_ms) for name in sorted(looks.groups))
    )
    reasons = _reasons(looks, broker_groups)
    figures: AllFigures | None = view.kept.find("all_figures")
    lags = [] if figures is None else _top_lags(figures)
    members = [look for group in looks.groups.values() for look in group]
    leading = [look.figures for look in members if look.leads and look.figures is not None]
    rates = sorted(sampler.rates.items(), key=lambda pair: (-pair[1], pair[0]))
    return shapes.Overview(
        cluster=view.id,
        at_ms=call.now_ms,
        health=_health(reasons),
        reasons=reasons,
        in_per_s=sum(one.in_per_s or 0.0 for one in leading) if leading else None,
        out_per_s=sum(one.out_per_s or 0.0 for one in leading) if leading else None,
        in_bytes_per_s=view.history.last("in_bytes_per_s", ""),
        out_bytes_per_s=view.history.last("out_bytes_per_s", ""),
        lag_messages=(
            None
            if figures is None or figures.tally.is_silent
            else sum(one.lag.messages for one in figures.by_group.values())
        ),
        lag_age_s=view.kept.age_s("all_figures"),
        topics=None if topics.tally.is_silent else len(topics.by_name),
        consumer_groups=None if groups.tally.is_silent else len(groups.by_name),
        broker_groups=len(looks.groups),
        members=len(members),
        members_answering=sum(look.figures is not None for look in members),
        groups_without_leader=[one.name for one in broker_groups if one.leader is None],
        disk=_disk(sampler, broker_groups),
        top_topics=[
            shapes.TopicRate(topic=topic, in_per_s=rate) for topic, rate in rates[:_TOP] if rate
        ],
        topics_asked=len(sampler.rates),
        top_lags=lags,
        events=view.timeline.recent(call.now_ms - _HOUR_MS)[:_EVENTS_MAX],
        answers=looks.tally.answers(),
    )


def _top_lags(figures: AllFigures) -> list[shapes.GroupLag]:
    late = [(group, one.lag) for group, one in figures.by_group.items() if one.lag.messages]
    late.sort(key=lambda pair: (-pair[1].messages, pair[0]))
    return [
        shapes.GroupLag(group=group, lag_messages=lag.messages, lag_ms=lag.age_ms)
        for group, lag in late[:_TOP]
    ]


def _health(reasons: list[shapes.Reason]) -> shapes.State:
    worst = {reason.severity for reason in reasons}
    return "critical" if "critical" in worst else "warning" if "warning" in worst else "ok"


def _reason(
    code: str, severity: shapes.Severity, subject: str, text: str, **values: str
) -> shapes.Reason:
    return shapes.Reason(code=code, severity=severity, subject=subject, text=text, values=values)


def _reasons(looks: Looks, groups: list[shapes.BrokerGroup]) -> list[shapes.Reason]:
    found = []
    for address, reason in looks.name_servers.items():
        if reason:
            text = f"name server {address} does not answer: {reason}"
            found.append(_reason("name_server_gone", "warning", address, text, reason=reason))
    if not groups:
        found.append(_reason("no_brokers", "critical", "", "no broker is registered"))
    for group in groups:
        found += _reasons_of(group)
    found.sort(key=lambda reason: _SEVERITIES.index(reason.severity))
    return found


def _reasons_of(group: shapes.BrokerGroup) -> list[shapes.Reason]:
    found = []
    if group.leader is None:
        text = f"{group.name} has no leader: it takes no messages"
        found.append(_reason("no_leader", "critical", group.name, text, group=group.name))
    for member in group.members:
        where = {"group": group.name, "member": member.member}
        subject = f"{group.name}/{member.member}"
        if not member.is_answering:
            text = f"{subject} does not answer: {member.reason}"
            found.append(_reason("member_gone", "warning", subject, text, **where))
        if member.role == "FAILED" or member.repair:
            text = f"{subject}: {member.repair or 'it failed'}"
            found.append(_reason("repair", "warning", subject, text, **where))
        if (member.behind_bytes or 0) > _BEHIND_BYTES:
            count = str(member.behind_bytes)
            text = f"{subject} is {count} bytes behind its leader"
            found.append(_reason("behind", "warning", subject, text, bytes=count, **where))
        ratio = member.disk_used_ratio or 0.0
        if ratio >= _DISK_HIGH:
            severity: shapes.Severity = "critical" if ratio >= _DISK_FULL else "warning"
            text = f"the disk of {subject} is {ratio:.0%} full"
            found.append(
                _reason("disk_high", severity, subject, text, used=f"{ratio:.0%}", **where)
            )
        for alarm in member.alarms:
            text = f"{subject}: {alarm}"
            found.append(_reason("alarm", "critical", subject, text, alarm=alarm, **where))
    return found


def _disk(sampler: Sampler, groups: list[shapes.BrokerGroup]) -> shapes.Disk | None:
    members = [
        (f"{group.name}/{member.member}", member)
        for group in groups
        for member in group.members
        if member.disk_used_ratio is not None
    ]
    if not members:
        return None
    name, fullest = max(members, key=lambda pair: pair[1].disk_used_ratio or 0.0)
    return shapes.Disk(
        member=name,
        used_ratio=fullest.disk_used_ratio or 0.0,
        free_bytes=fullest.disk_free_bytes,
        days_left=sampler.view.history.days_to("disk_used_ratio", name, 1.0),
    )


async def get_history(call: Call) -> shapes.History:
    """Figures of the last hour."""
    query = call.asks(shapes.HistoryQuery)
    names = words_of(query.series, "series", UNITS)
    series = call.cluster.history.read(
        names, call.now_ms - query.span_s * 1000, members=bool(names)
    )
    return shapes.History(series=series, step_s=STEP_S, longer=call.terms.longer_history)
