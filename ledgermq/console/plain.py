"""The overview as plain text: for browsers without scripts, and for `curl`."""

from collections.abc import Iterator

from ledgermq.console.shapes.brokers import BrokerGroups, Member, Overview
from ledgermq.console.shapes.elements import Answers


def describe(overview: Overview, groups: BrokerGroups) -> str:
    """Returns how a cluster is: its health with the reasons, and each member."""
    return "".join(f"{_printable(line)}\n" for line in _lines(overview, groups))


def describe_silent(answers: Answers) -> str:
    """Returns who did not answer; empty when everybody did."""
    told = (f"{one.who} {one.address} does not answer: {one.reason}" for one in answers.silent)
    return "".join(f"{_printable(line)}\n" for line in told)


def _lines(overview: Overview, groups: BrokerGroups) -> Iterator[str]:
    yield f"{overview.cluster}: {overview.health}"
    for reason in overview.reasons:
        yield f"  {reason.severity}: {reason.text}"
    yield (
        f"  {overview.members_answering} of {overview.members} members answer,"
        f" in {_number(overview.in_per_s)}/s, out {_number(overview.out_per_s)}/s,"
        f" lag {_number(overview.lag_messages)}, topics {_number(overview.topics)},"
        f" consumer groups {_number(overview.consumer_groups)}"
    )
    for group in groups.broker_groups:
        yield f"  {group.name}: {group.state}"
        for member in group.members:
            yield f"    {member.member} {member.address} {_member(member)}"


def _member(member: Member) -> str:
    if not member.is_answering:
        return f"does not answer: {member.reason}"
    behind = f", {member.behind_bytes} bytes behind" if member.behind_bytes else ""
    return f"{member.role}{behind}" + "".join(f", {alarm}" for alarm in member.alarms)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
