"""``ledgermq top``: a live table of a cluster: brokers with their rates and alarms, groups and lag.

On a terminal it is printed over itself until Ctrl-C; elsewhere round by round. --json prints a line
for each round.
"""

from __future__ import annotations

import argparse
import json
import time

from ledgermq.cli.cluster_command import add_cluster_arguments, count, run_with_admin
from ledgermq.cli.live import add_live_arguments, repeat
from ledgermq.cli.moments import local_time
from ledgermq.cli.table import print_table
from ledgermq.client.admin import BrokerState, GroupLag
from ledgermq.client.blocking import AdminClient

_COLUMNS = (
    "cluster", "broker", "id", "role", "term", "address", "in/s", "out/s", "waiting", "disk",
    "behind", "notes",
)  # fmt: skip
# Figures of a broker that say that something is wrong, where they are not empty.
_ALARMS = ("ledgerAlarm", "ledgerRepair", "ledgerRefused", "stateAlarm", "accessAlarm")


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
    print(_headline(now, brokers, lags))
    print()
    print_table(_COLUMNS, rows, False)
    print()
    print_table(("group", "behind", "rate"), groups, False)


def _headline(now: str, brokers: list[BrokerState], lags: list[GroupLag]) -> str:
    leaders = [one for one in brokers if one.is_leader]
    taken = sum(one.rate("putTps") or 0 for one in leaders)
    given = sum(one.rate("getTransferedTps") or 0 for one in brokers)
    names = {one.broker_name for one in brokers}
    leaderless = sorted(names - {one.broker_name for one in leaders})
    text = (
        f"{now}  {len(brokers)} brokers, in {taken:,.0f}/s, out {given:,.0f}/s,"
        f" {sum(one.behind for one in lags):,} messages behind"
    )
    return f"{text}; NO LEADER: {', '.join(leaderless)}" if leaderless else text


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
    """Returns what a broker tells that is wrong with it."""
    alarms = [one.figures[name] for name in _ALARMS if one.figures.get(name)]
    birth = one.figures.get("ledgerBirth", "")
    return alarms if not birth or "is born" in birth else [*alarms, birth]
