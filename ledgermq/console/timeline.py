"""Timeline: what happened in a cluster, as one look at it after the other shows; bounded."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from ledgermq.console.shapes.elements import Event

_EVENTS_MAX: Final = 500
_GROUPS_MAX: Final = 500
_OF_GROUP_MAX: Final = 100
_DISK_HIGH: Final = 0.85
_Severity = Literal["info", "warning", "critical"]


class Seen(NamedTuple):
    """A member at one look."""

    # n0, or the broker id.
    name: str
    is_leader: bool
    is_answering: bool
    term: int | None
    disk_used_ratio: float | None
    alarms: tuple[str, ...]


class Timeline:
    """Events of one cluster, the newest last."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_EVENTS_MAX)
        # By broker group: its members by name, as last seen, and who led last.
        self._members: dict[str, dict[str, Seen]] = {}
        self._leaders: dict[str, str | None] = {}
        # By consumer group: its clients as last seen, and what came and went.
        self._clients: dict[str, tuple[frozenset[str], deque[Event]]] = {}

    def look(self, groups: Mapping[str, Iterable[Seen]], now_ms: int) -> None:
        """Compares what is with what was."""
        for group, members in groups.items():
            now = {member.name: member for member in members}
            before = self._members.get(group)
            leader = next((one.name for one in now.values() if one.is_leader), None)
            if before is not None:
                self._compare(group, before, now, now_ms)
                self._compare_leaders(group, self._leaders.get(group), leader, now, now_ms)
            self._members[group], self._leaders[group] = now, leader

    def recent(self, since_ms: int, group: str = "") -> list[Event]:
        """Returns events since a moment, the newest first; of one broker group, or of all."""
        return [
            event
            for event in reversed(self._events)
            if event.at_ms >= since_ms and (not group or event.values.get("group") == group)
        ]

    def of_group(self, group: str, clients: Iterable[str], now_ms: int) -> list[Event]:
        """Notes the clients of a consumer group; returns who came and went, the newest first."""
        now = frozenset(clients)
        before, events = self._clients.pop(group, (None, deque(maxlen=_OF_GROUP_MAX)))
        while len(self._clients) >= _GROUPS_MAX:
            del self._clients[next(iter(self._clients))]
        self._clients[group] = (now, events)
        if before is not None:
            for code, names, verb in (
                ("group_joined", now - before, "joined"),
                ("group_left", before - now, "left"),
            ):
                for name in sorted(names):
                    values = {"client": name, "consumer_group": group}
                    text = f"{name} {verb} {group}"
                    events.append(_event(now_ms, code, "info", group, text, values))
        return list(reversed(events))

    def _compare(
        self, group: str, before: Mapping[str, Seen], now: Mapping[str, Seen], now_ms: int
    ) -> None:
        for name, member in now.items():
            was = before.get(name)
            if was is None:
                continue
            values = {"group": group, "member": name}
            if was.is_answering and not member.is_answering:
                text = f"{name} of {group} no longer answers"
                self._add(now_ms, "member_gone", "warning", name, text, values)
            if member.is_answering and not was.is_answering:
                text = f"{name} of {group} answers again"
                self._add(now_ms, "member_back", "info", name, text, values)
            if _is_high(member) and not _is_high(was):
                ratio = f"{member.disk_used_ratio:.0%}"
                text = f"the disk of {name} of {group} is {ratio} full"
                values = values | {"used": ratio}
                self._add(now_ms, "disk_high", "warning", name, text, values)
            for alarm in sorted(set(member.alarms) - set(was.alarms)):
                text = f"{name} of {group}: {alarm}"
                values = values | {"alarm": alarm}
                self._add(now_ms, "alarm", "critical", name, text, values)

    def _compare_leaders(
        self,
        group: str,
        before: str | None,
        now: str | None,
        members: Mapping[str, Seen],
        now_ms: int,
    ) -> None:
        if now == before:
            return
        if now is None:
            text = f"{group} has no leader"
            self._add(now_ms, "no_leader", "critical", group, text, {"group": group})
            return
        term = members[now].term
        text = f"{now} leads {group}" + ("" if term is None else f" in term {term}")
        values = {"group": group, "member": now, "term": "" if term is None else str(term)}
        self._add(now_ms, "leader_changed", "info", group, text, values)

    def _add(
        self,
        at_ms: int,
        code: str,
        severity: _Severity,
        subject: str,
        text: str,
        values: dict[str, str],
    ) -> None:
        self._events.append(_event(at_ms, code, severity, subject, text, values))


def _event(
    at_ms: int, code: str, severity: _Severity, subject: str, text: str, values: dict[str, str]
) -> Event:
    return Event(
        at_ms=at_ms, code=code, severity=severity, subject=subject, text=text, values=values
    )


def _is_high(member: Seen) -> bool:
    return member.disk_used_ratio is not None and member.disk_used_ratio >= _DISK_HIGH
