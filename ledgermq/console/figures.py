"""Figures: what one member tells about itself (28), read once; also of brokers that tell less."""

from typing import Final, NamedTuple

from ledgermq.console.answers import NAME_CHARS_MAX, TEXT_CHARS_MAX, check_size
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.route import KVTable

# A member tells a few thousand bytes.
_BYTES_MAX: Final = 256 * 1024
_GIB: Final = 1 << 30
_SIZES: Final = {"GiB": 1 << 30, "G": 1 << 30, "TiB": 1 << 40, "T": 1 << 40, "MiB": 1 << 20}


class Figures(NamedTuple):
    """One member; None for what it does not tell."""

    role: str
    member: str
    term: int | None
    leader: str
    log_begin: int | None
    log_end: int | None
    dispatch_behind: int | None
    in_per_s: float | None
    out_per_s: float | None
    # Bytes of messages since its start.
    put_bytes: int | None
    # The same of messages that consumers got; Apache's brokers do not tell.
    got_bytes: int | None
    # Below which time 99 % of the messages of the last minute or two were stored; ms.
    put_p99_ms: float | None
    disk_used_ratio: float | None
    disk_free_bytes: int | None
    oldest_ms: int | None
    version: str
    started_ms: int | None
    repair: str
    alarms: list[str]
    # How far each delay level is delivered, and its end.
    delays: dict[int, tuple[int, int]]


def read_figures(answer: RemotingCommand) -> Figures:
    """Reads the answer to 28.

    Raises:
        RemoteProtocolError: it is none.
    """
    check_size(answer.body, _BYTES_MAX)
    return figures_of(KVTable.decode(answer.body).table)


def figures_of(table: dict[str, str]) -> Figures:
    """Returns what a table of texts says."""
    ratio = _real(table.get("commitLogDiskRatio"))
    return Figures(
        role=table.get("ledgerRole", "")[:NAME_CHARS_MAX],
        member=table.get("ledgerSelfId", "")[:NAME_CHARS_MAX],
        term=_number(table.get("ledgerTerm")),
        leader=table.get("ledgerLeaderId", "")[:NAME_CHARS_MAX],
        log_begin=_number(table.get("commitLogMinOffset")),
        log_end=_number(table.get("commitLogMaxOffset")),
        dispatch_behind=_number(table.get("dispatchBehindBytes")),
        in_per_s=_first(table.get("putTps")),
        out_per_s=_first(table.get("getTransferedTps") or table.get("getTransferredTps")),
        put_bytes=_number(table.get("putMessageSizeTotal")),
        got_bytes=_number(table.get("getMessageSizeTotal")),
        put_p99_ms=_real(table.get("putLatency99")),
        disk_used_ratio=ratio if ratio is not None and 0 <= ratio <= 1 else None,
        disk_free_bytes=_free_bytes(table.get("commitLogDirCapacity", "")),
        oldest_ms=_positive(table.get("earliestMessageTimeStamp")),
        version=table.get("brokerVersionDesc", "")[:NAME_CHARS_MAX],
        started_ms=_positive(table.get("bootTimestamp")),
        repair=table.get("ledgerRepair", "")[:TEXT_CHARS_MAX],
        alarms=[
            f"{name}: {table[name][:TEXT_CHARS_MAX]}"
            for name in (
                "ledgerAlarm",
                "ledgerSettings",
                "ledgerClock",
                "stateAlarm",
                "accessAlarm",
            )
            if table.get(name)
        ],
        delays=_delays(table),
    )


def _number(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    return int(text or "")


def _positive(text: str | None) -> int | None:
    number = _number(text)
    return number if number is not None and number > 0 else None


def _real(text: str | None) -> float | None:
    try:
        return float(text) if text and len(text) < 40 else None
    except ValueError:
        return None


def _first(text: str | None) -> float | None:
    """The first of figures over 10, 60 and 600 s."""
    words = (text or "").split()
    return _real(words[0]) if words else None


def _free_bytes(text: str) -> int | None:
    """Of `Total : 9.9 GiB, Free : 2.1 GiB.`"""
    _, found, rest = text.partition("Free :")
    words = rest.strip().rstrip(".").split()
    if not found or len(words) != 2:
        return None
    value = _real(words[0])
    return None if value is None else int(value * _SIZES.get(words[1], _GIB))


def _delays(table: dict[str, str]) -> dict[int, tuple[int, int]]:
    found = {}
    for key, text in table.items():
        level = _number(key.removeprefix("scheduleMessageOffset_"))
        delivered, comma, end = text.partition(",")
        numbers = (_number(delivered), _number(end))
        if level is not None and comma and None not in numbers:
            found[level] = (numbers[0] or 0, numbers[1] or 0)
    return found
