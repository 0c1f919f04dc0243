"""``ledgermq top``: a live table of a cluster: alarms, brokers with their rates, groups and lag.

On a terminal it is printed over itself until Ctrl-C; elsewhere round by round. --json prints a line
for each round.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Sequence

from ledgermq.cli.cluster_command import add_cluster_arguments, count, run_with_admin
from ledgermq.cli.live import add_live_arguments, repeat
from ledgermq.cli.moments import local_time
from ledgermq.cli.table import print_table
from ledgermq.client.admin import BrokerState, GroupLag
from ledgermq.client.blocking import AdminClient
from ledgermq.protocol.plain_text import escaped

_COLUMNS = (
    "cluster", "broker", "id", "role", "term", "address", "in/s", "out/s", "waiting", "disk",
    "behind", "notes",
)  # fmt: skip
# As people see them: alarms stand above, and a terminal of 80 columns is wide enough.
_TITLES = (*_COLUMNS[:8], "wait", *_COLUMNS[9:-1])
# As a leader tells of its followers, and the silence of one that is lost: three heart beats of
# Java's members, and some more.
_FOLLOWER = re.compile(r"(\S+) \d+ entries and \d+ bytes behind, heard (\d{1,18}) ms ago")
_SILENCE_MS_MAX = 10_000
# Figures of a broker that say that something is wrong, where they are not empty.
_ALARMS = (
    "ledgerAlarm", "ledgerRepair", "ledgerRejectedPeers", "ledgerBootstrap", "ledgerClock",
    "stateAlarm", "accessAlarm",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_cluster_arguments(parser)
    add_live_arguments(parser, interval_s=2.0)
    parser.add_argument(
        "--groups", type=count, default=10, metavar="N", help="so many; default: %(default)s"
    )


def run(options: argparse.Namespace) -> int:
    """Prints until it is stopped; returns the exit code."""
    return run_with_admin(options, _show)


def _show(admin: AdminClient, options: argparse.Namespace) -> int:
    return repeat(options, lambda: _print_round(admin, options))


def _print_round(admin: AdminClient, options: argparse.Namespace) -> None:
    brokers, lags = admin.brokers(), admin.lags()
    lags.sort(key=lambda one: (-one.behind, one.group))
    now = local_time(time.time_ns() // 1_000_000)
    rows = [broker_row(one, brokers) for one in brokers]
    groups = [(one.group, one.behind, round(one.rate, 1)) for one in lags[: options.groups]]
    if options.json:
        print(
            json.dumps(
                {
                    "time": now,
                    "brokers": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
                    "groups": [
                        dict(zip(("group", "behind", "rate"), row, strict=True)) for row in groups
                    ],
                }
            )
        )
        return
    for line in headlines(now, brokers, lags):
        print(line)
    print()
    # One cluster needs no column for its name.
    first = 1 if len({one.cluster for one in brokers}) <= 1 else 0
    print_table(_TITLES[first:], [_rounded(row[first:-1]) for row in rows], False)
    print()
    print_table(("group", "behind", "rate"), groups, False)


def _rounded(row: Sequence[object]) -> list[object]:
    return [round(cell, 1) if isinstance(cell, float) else cell for cell in row]


def headlines(now: str, brokers: Sequence[BrokerState], lags: Sequence[GroupLag]) -> list[str]:
    """Returns what is to be seen first: what is wrong, then the sums of the cluster."""
    leaders = [one for one in brokers if one.is_leader]
    taken = sum(one.rate("putTps") or 0 for one in leaders)
    given = sum(one.rate("getTransferedTps") or 0 for one in brokers)
    leaderless = {one.broker_name for one in brokers} - {one.broker_name for one in leaders}
    lines = [f"NO LEADER: {escaped(name)}" for name in sorted(leaderless)]
    for one in brokers:
        troubles = alarms_of(one) if one.failure is None else [one.failure]
        lines += [
            escaped(f"{one.broker_name} {one.broker_id} ({one.address}): {trouble}")
            for trouble in troubles
        ]
    sums = (
        f"{now}  {len(brokers)} brokers, in {taken:,.0f}/s, out {given:,.0f}/s,"
        f" {sum(one.behind for one in lags):,} messages behind"
    )
    return [*lines, sums]


def broker_row(one: BrokerState, brokers: list[BrokerState]) -> tuple[object, ...]:
    """Returns the row of a broker; `behind` are bytes of log that its leader has beyond it."""
    place = (one.cluster, one.broker_name, one.broker_id)
    if one.failure is not None:
        return (*place, "?", "", one.address, "", "", "", "", "", one.failure)
    figures = one.figures
    role = figures.get("ledgerRole") or ("master" if one.is_leader else "slave")
    ratio = figures.get("commitLogDiskRatio", "")
    try:
        disk = f"{float(ratio):.0%}"
    except ValueError:
        disk = ""
    ends = [
        end
        for other in brokers
        if other.broker_name == one.broker_name
        and (end := other.number("commitLogMaxOffset")) is not None
    ]
    own = one.number("commitLogMaxOffset")
    return (
        *place,
        role.lower(),
        figures.get("ledgerTerm", ""),
        one.address,
        one.rate("putTps") if one.is_leader else "",
        one.rate("getTransferedTps"),
        figures.get("sendThreadPoolQueueSize", "") if one.is_leader else "",
        disk,
        max(ends) - own if own is not None else "",
        "; ".join(alarms_of(one)),
    )


def alarms_of(one: BrokerState) -> list[str]:
    """Returns what a broker tells that is wrong with it, or with its followers."""
    alarms = [one.figures[name] for name in _ALARMS if one.figures.get(name)]
    # Name servers forget a member that is gone; its leader does not.
    for member, silent_ms in _FOLLOWER.findall(one.figures.get("ledgerFollowers", "")):
        if int(silent_ms) > _SILENCE_MS_MAX:
            alarms.append(f"member {member} is not there: silent for {int(silent_ms) // 1000} s")
    return alarms
