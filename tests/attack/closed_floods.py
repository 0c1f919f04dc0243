"""Floods against a closed cluster of real processes, each judged by a well-behaved client beside.

    python -m tests.attack.closed_floods [--small] [NAME ...]         make floods

For each flood a cluster is started (three members, name server, console; accounts, TLS, secret of
the group), the client is watched alone and then beside the flood, and a row of the table of
docs/security.md is printed. Exit code 1 when a bound is broken: the client's p99 is ten times its
quiet one or more, something that it sent was refused or is lost, or the victim's memory does not
return within a minute. Each flood is bounded in count and time, and ends by itself.

On a machine with two cores the flooder itself takes a core, and what the client waits for then is
the scheduler. So the flooder has one processor and the lowest priority there: it gets what the
cluster leaves of it. The cluster and the client have both. What else the machine does is left out:
judged is the p99 without the time in which the client and the programs that it waits for stood in
line for a processor, as the kernel counts it. The other one is printed, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.protocol.codes import RequestCode
from tests.attack import floods
from tests.attack.bystander import Bystander, Seen, Way
from tests.attack.closed_cluster import (
    CONSOLE,
    NAME_SERVER,
    TOPIC,
    ClosedCluster,
    ClosedTarget,
    enter,
    pages_beside,
    probes_beside,
    routes_beside,
    sends_beside,
)
from tests.attack.floods import TIMES_MAX, Size
from tests.attack.victim import SPARE_MB, Flood, Target, cpu_s_of
from tests.processes import LOOPBACK
from tests.waiting import pause, wait_until

# A quiet p99 that is shorter counts as so long: below it the clock of the machine is measured.
_QUIET_FLOOR_MS: Final = floods.QUIET_FLOOR_MS
_WARM_S: Final = 2.0
_QUIET_S: Final = 6.0
_RETURN_S: Final = 60.0
_AFTER_S: Final = 3.0
_SAMPLE_S: Final = 0.05
_LOWEST_PRIORITY: Final = 19
_HTTP_CONNECTIONS: Final = 16

LARGE: Final = Size(10.0, 100_000, 2_000, 100_000, 120, 2_000)
SMALL: Final = Size(3.0, 5_000, 300, 5_000, 60, 300)

Beside = Callable[[ClosedCluster, int], Way]


class Case(NamedTuple):
    """One flood: whom it hits, and who is beside."""

    make: Callable[[Size], Flood]
    beside: Beside
    target: Callable[[ClosedCluster], ClosedTarget]


def _leader(cluster: ClosedCluster) -> ClosedTarget:
    return ClosedTarget(cluster, cluster.leader, cluster.programs[cluster.leader].address)


def _name_server(cluster: ClosedCluster) -> ClosedTarget:
    return ClosedTarget(cluster, NAME_SERVER, cluster.name_server)


def _broker_http(cluster: ClosedCluster) -> ClosedTarget:
    address = f"{LOOPBACK}:{cluster.http[cluster.leader]}"
    return ClosedTarget(cluster, cluster.leader, address, is_http=True)


def _console_http(cluster: ClosedCluster) -> ClosedTarget:
    address = pages_beside(cluster, 0).address
    return ClosedTarget(cluster, CONSOLE, address, is_http=True)


def _pages(size: Size, *paths: str) -> Flood:
    """Requests for pages in pipelines, of connections that read little."""
    data = b"".join(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() for path in paths)
    data *= 300
    return lambda victim: floods.pipeline_for(victim, size.seconds, [data] * _HTTP_CONNECTIONS)


def broker_pages(size: Size) -> Flood:
    """Pages of metrics and probes."""
    return _pages(size, "/metrics", "/readyz", "/nothing")


def console_pages(size: Size) -> Flood:
    """The page itself, its description, what is refused, and tries to sign in."""
    body = b'{"access_key": "operator", "secret_key": "a guess"}'
    head = f"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    tries = (head + "Content-Type: application/json\r\n\r\n").encode() + body
    gets = b"".join(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for path in ("/", "/api/v1/openapi.json", "/api/v1/overview")
    )
    data = (gets + tries) * 200
    return lambda victim: floods.pipeline_for(victim, size.seconds, [data] * _HTTP_CONNECTIONS)


def name_server_requests(size: Size) -> Flood:
    """Routes, the whole cluster, registrations without a right, and unknown codes."""

    def flood(victim: Target) -> None:
        stolen = {
            "brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster",
            "haServerAddr": "127.0.0.1:2", "brokerId": "0", "bodyCrc32": "0", "compressed": "false",
        }  # fmt: skip
        data = b"".join(
            victim.request(RequestCode.GET_ROUTEINFO_BY_TOPIC.value, {"topic": TOPIC})
            + victim.request(RequestCode.GET_BROKER_CLUSTER_INFO.value, {})
            + victim.request(RequestCode.REGISTER_BROKER.value, stolen)
            + victim.request(9999, {})
            for _ in range(500)
        )
        floods.pipeline_for(victim, size.seconds, [data] * _HTTP_CONNECTIONS)

    return flood


_AT_LEADER: Final = (
    floods.held_pulls, floods.woken_pulls, floods.sql, floods.new_sql, floods.idle_connections,
    floods.half_messages, floods.delayed_messages, floods.tls_handshakes, floods.one_way,
    floods.one_way_of_many, floods.small_requests, floods.unfinished_frames, floods.slow_loris,
    floods.small_pieces, floods.list_requests, floods.changed_lists, floods.stands_of_groups,
    floods.heart_beats, floods.leaving_members, floods.many_keys,
)  # fmt: skip
CASES: Final = {
    **{make.__name__: Case(make, sends_beside, _leader) for make in _AT_LEADER},
    "http_at_the_broker": Case(broker_pages, sends_beside, _broker_http),
    "http_at_the_broker_probes": Case(broker_pages, probes_beside, _broker_http),
    "http_at_the_console": Case(console_pages, pages_beside, _console_http),
    "name_server_requests": Case(name_server_requests, routes_beside, _name_server),
}


@dataclass(frozen=True)
class Outcome:
    """What one flood did."""

    quiet: Seen
    beside: Seen
    # Of a processor, used by the victim: quiet, beside the flood, afterwards.
    shares: tuple[float, float, float]
    before_mb: float
    peak_mb: float
    after_mb: float
    has_returned: bool
    lost_count: int

    @property
    def ratio(self) -> float:
        """How many times its quiet p99 the client's p99 is."""
        return self.beside.p99_ms / max(self.quiet.p99_ms, _QUIET_FLOOR_MS)

    @property
    def free_ratio(self) -> float:
        """The same without the time in which programs stood in line for a processor."""
        return self.beside.free_p99_ms / max(self.quiet.free_p99_ms, _QUIET_FLOOR_MS)

    def broken(self) -> list[str]:
        """Returns which bounds are broken."""
        bounds = {
            f"p99 is {self.free_ratio:.1f} times the quiet one": self.free_ratio < TIMES_MAX,
            f"{self.beside.refused_count} refused": self.beside.refused_count == 0,
            f"{self.lost_count} lost": self.lost_count == 0,
            f"memory is {self.after_mb:.0f} MB after a minute": self.has_returned,
        }
        return [text for text, holds in bounds.items() if not holds]


def _seen(way: Way, seconds: float) -> Seen:
    with Bystander(way) as bystander:
        pause(seconds)
    return bystander.seen


def _confined(flood: Flood, target: Target) -> None:
    """Runs a flood on one processor, with what others leave of it."""
    errors: list[BaseException] = []

    def run() -> None:
        # Both count for this thread and for those that it starts.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
        try:
            flood(target)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


class _Use:
    """Processor time of a process since this was made, as a share of one processor."""

    def __init__(self, pid: int) -> None:
        self._pid, self._cpu_s, self._begun_s = pid, cpu_s_of(pid), time.monotonic()

    def share(self) -> float:
        return (cpu_s_of(self._pid) - self._cpu_s) / (time.monotonic() - self._begun_s)


def measure(case: Case, size: Size, folder: Path) -> Outcome:
    """Starts a cluster, floods it, and tells what that did."""
    with ExitStack() as stack:
        cluster = enter(stack, folder)
        target = case.target(cluster)
        program = target.program
        with target_of_sends(cluster).connect() as client:
            assert client.send(TOPIC, 0, b"first").code == 0
        way = case.beside(cluster, 0)
        warm = _seen(way, _WARM_S)
        use = _Use(program.pid)
        quiet = _seen(replace(way, first=len(warm.waits_ms)), _QUIET_S)
        shares = [use.share()]
        before_mb = program.resident_mb
        samples, ended = [before_mb], threading.Event()

        def sample() -> None:
            while not ended.wait(_SAMPLE_S):
                samples.append(program.resident_mb)

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            use = _Use(program.pid)
            first = len(warm.waits_ms) + len(quiet.waits_ms)
            with Bystander(replace(way, first=first)) as bystander:
                _confined(case.make(size), target)
            shares.append(use.share())
        finally:
            ended.set()
            sampler.join()
        has_returned = _returns(lambda: program.resident_mb <= before_mb + SPARE_MB)
        use = _Use(program.pid)
        pause(_AFTER_S)
        shares.append(use.share())
        sent = {*warm.acknowledged, *quiet.acknowledged, *bystander.seen.acknowledged}
        lost = sent - _stored(cluster) if way.kind == "send" else set()
        return Outcome(
            quiet, bystander.seen, (shares[0], shares[1], shares[2]), before_mb, max(samples),
            program.resident_mb, has_returned, len(lost),
        )  # fmt: skip


def target_of_sends(cluster: ClosedCluster) -> ClosedTarget:
    """The leader's port for clients."""
    return _leader(cluster)


def _returns(is_back: Callable[[], bool]) -> bool:
    try:
        wait_until(is_back, what="memory that returns", deadline_s=_RETURN_S)
    except AssertionError:
        return False
    return True


def _stored(cluster: ClosedCluster) -> set[int]:
    with _leader(cluster).connect() as client:
        records = client.read_queue(TOPIC, 0)
    return {int(record.body) for record in records if record.body.strip().isdigit()}


_HEAD: Final = (
    "| flood | p99 quiet | p99 beside | times | times, free of other programs"
    " | victim's processor, quiet / beside / after | its memory, before / most / after"
    " | sent beside | refused | lost |\n" + "|---" * 10 + "|"
)


def _row(name: str, outcome: Outcome) -> str:
    shares = " / ".join(f"{100 * share:.0f} %" for share in outcome.shares)
    beside = outcome.beside
    return (
        f"| {name.replace('_', ' ')} | {outcome.quiet.p99_ms:.1f} ms | {beside.p99_ms:.1f} ms"
        f" | {outcome.ratio:.1f} | {outcome.free_ratio:.1f} | {shares}"
        f" | {outcome.before_mb:.0f} / {outcome.peak_mb:.0f} / {outcome.after_mb:.0f} MB"
        f" | {len(beside.waits_ms):,} | {beside.refused_count} | {outcome.lost_count} |"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--small", action="store_true", help="a few seconds of each")
    options = parser.parse_args()
    if unknown := set(options.names) - set(CASES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    size = SMALL if options.small else LARGE
    broken: list[str] = []
    _say(_HEAD)
    for name, case in CASES.items():
        if options.names and name not in options.names:
            continue
        with tempfile.TemporaryDirectory(prefix="ledgermq-flood-") as folder:
            outcome = measure(case, size, Path(folder))
        _say(_row(name, outcome))
        broken += [f"{name}: {text}" for text in outcome.broken()]
    for line in broken:
        _say(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
