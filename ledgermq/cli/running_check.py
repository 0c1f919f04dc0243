"""What `ledgermq doctor --running` looks at: brokers of a running cluster, a consumer group."""

from __future__ import annotations

from typing import Final

from ledgermq.cli.finding import Finding
from ledgermq.cli.top import alarms_of
from ledgermq.client.admin import BrokerState
from ledgermq.client.blocking import AdminClient

# A member that has so much of the log still to get is not on the leader's heels.
_BEHIND_BYTES_MAX: Final = 16 * 1024 * 1024
_DISK_WARNING: Final = 0.8
_DISK_FAILED: Final = 0.95
# A disk whose syncs of the log take so long holds others up as soon as it is needed.
_SYNC_MS_MAX: Final = 100
# The leader's clock stands so far behind the times in its log.
_TIME_AHEAD_MS_MAX: Final = 2_000


def check_running(admin: AdminClient, group: str | None) -> list[Finding]:
    """Returns the findings about all brokers, and about one consumer group.

    Raises:
        ClientError: no name server answers, or no broker knows the group.
    """
    brokers = admin.brokers()
    if not brokers:
        return [Finding("brokers", "failed", "the name server knows none")]
    findings: list[Finding] = []
    for name in sorted({one.broker_name for one in brokers}):
        findings += check_group_of_brokers([one for one in brokers if one.broker_name == name])
    if group is not None:
        described = admin.describe_group(group)
        findings += [Finding("group", "warning", f"{group}: {one}") for one in described.problems]
        if not described.problems:
            text = f"{group}: {len(described.members)} members, {described.lag.behind} behind"
            findings.append(Finding("group", "good", text))
    return findings


def check_group_of_brokers(members: list[BrokerState]) -> list[Finding]:
    """Returns the findings about the brokers of one name."""
    name = members[0].broker_name
    leaders = [one for one in members if one.is_leader]
    findings = [_leader_finding(name, leaders)]
    for one in members:
        if one.failure is not None:
            findings.append(Finding("broker", "failed", f"{_shown(one)}: {one.failure}"))
    told = [one for one in members if one.failure is None]
    for one in told:
        trouble = [Finding("broker", "failed", f"{_shown(one)}: {text}") for text in alarms_of(one)]
        trouble += _disk_findings(one) + _sync_findings(one)
        trouble += _setting_findings(one) + _time_findings(one) + _behind_findings(one, told)
        findings += trouble or [Finding("broker", "good", f"{_shown(one)}: {_role(one)}")]
    findings += _membership_findings(name, told)
    terms = {one.figures["ledgerTerm"] for one in told if one.figures.get("ledgerTerm")}
    if len(terms) > 1:
        text = (
            f"{name}: members are in terms {', '.join(sorted(terms))}: they elect, or are cut off"
        )
        findings.append(Finding("term", "warning", text))
    return findings


def _membership_findings(name: str, told: list[BrokerState]) -> list[Finding]:
    """Compares what members say themselves: those that reject each other cannot be asked once."""
    findings = []
    for key, what in (("ledgerMembers", "member lists"), ("ledgerClusterId", "cluster ids")):
        by_value: dict[str, list[str]] = {}
        for one in told:
            if one.figures.get(key):
                by_value.setdefault(one.figures[key], []).append(_member(one))
        if len(by_value) > 1:
            shown = "; ".join(
                f"{', '.join(members)}: {value}" for value, members in by_value.items()
            )
            text = f"{name}: members have different {what} ({shown}); see dLegerPeers of each"
            findings.append(Finding("membership", "failed", text))
    return findings


def _leader_finding(name: str, leaders: list[BrokerState]) -> Finding:
    if not leaders:
        return Finding("leader", "failed", f"{name} has none now: it takes no messages")
    told = [one for one in leaders if one.failure is None]
    role = told[0].figures.get("ledgerRole", "") if told else ""
    if role not in ("", "LEADER"):
        text = f"{name}: the name server names {leaders[0].address}, which is {role.lower()}"
        return Finding("leader", "warning", text)
    return Finding("leader", "good", f"{name}: {leaders[0].address}")


def _disk_findings(one: BrokerState) -> list[Finding]:
    try:
        used = float(one.figures.get("commitLogDiskRatio", ""))
    except ValueError:
        return []
    if used < _DISK_WARNING:
        return []
    verdict = "failed" if used >= _DISK_FAILED else "warning"
    return [Finding("disk space", verdict, f"{_shown(one)}: {used:.0%} used")]


def _sync_findings(one: BrokerState) -> list[Finding]:
    sync_ms = one.number("ledgerSyncMs") or 0
    if sync_ms <= _SYNC_MS_MAX:
        return []
    text = f"{_shown(one)}: its disk takes {sync_ms} ms for a sync of the log"
    return [Finding("disk", "warning", text)]


def _setting_findings(one: BrokerState) -> list[Finding]:
    difference = one.figures.get("ledgerSettings")
    if not difference:
        return []
    return [Finding("settings", "warning", f"{_shown(one)}: {difference}")]


def _time_findings(one: BrokerState) -> list[Finding]:
    ahead_ms = one.number("ledgerTimeAheadMs") or 0
    if ahead_ms <= _TIME_AHEAD_MS_MAX:
        return []
    text = f"{_shown(one)}: its log is {ahead_ms} ms ahead of its clock: a clock was wrong, or is"
    return [Finding("clock", "warning", text)]


def _behind_findings(one: BrokerState, told: list[BrokerState]) -> list[Finding]:
    ends = [end for other in told if (end := other.number("commitLogMaxOffset")) is not None]
    own = one.number("commitLogMaxOffset")
    if own is None or max(ends) - own <= _BEHIND_BYTES_MAX:
        return []
    text = f"{_shown(one)}: {(max(ends) - own) // 2**20} MiB of log behind"
    return [Finding("broker", "warning", text)]


def _role(one: BrokerState) -> str:
    role = one.figures.get("ledgerRole") or ("master" if one.is_leader else "slave")
    term = one.figures.get("ledgerTerm")
    return f"{role.lower()}, term {term}" if term else role.lower()


def _shown(one: BrokerState) -> str:
    return f"{one.broker_name} {_member(one)} ({one.address})"


def _member(one: BrokerState) -> str:
    return one.figures.get("ledgerSelfId") or str(one.broker_id)
