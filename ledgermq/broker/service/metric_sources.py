"""Where each metric comes from: the parts' own numbers, read when the page is made.

Nothing is counted for the page on the way of a message. What is told of topics and groups comes
from tables in memory, of the leader alone: its members hold the same.
"""

import contextlib
import gc
import importlib
import os
import platform
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ledgermq import __version__, kernel
from ledgermq.broker.config.http_keys import parse_labels
from ledgermq.broker.records.half_messages import HALF_GROUP
from ledgermq.broker.request_times import SENDS, name_of
from ledgermq.broker.service.exporter_metrics import ExporterMetrics
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.http_pulse import Pulse
from ledgermq.broker.service.serving import Serving
from ledgermq.broker.service.topic_metrics import TopicMetrics
from ledgermq.broker.service.wait_metrics import leader_metrics, request_metrics
from ledgermq.broker.watching.families import FAMILIES, Family
from ledgermq.broker.watching.page import Point
from ledgermq.dledger.member_view import MemberView
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.replica.membership_report import MembershipReport
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.tls.contexts import read_tls_file, server_context
from ledgermq.protocol.tls.engine import TlsError
from ledgermq.state import names

Group = tuple[Family, Iterable[Point]]

_NO_LABELS: Final[tuple[str, ...]] = ()
# Codes of refusals, for people; all others are "other".
_REFUSALS: Final = {
    int(ResponseCode.SYSTEM_BUSY): "busy",
    int(ResponseCode.SERVICE_NOT_AVAILABLE): "unavailable",
    int(ResponseCode.NO_PERMISSION): "acl",
    int(ResponseCode.MESSAGE_ILLEGAL): "illegal",
    int(ResponseCode.TOPIC_NOT_EXIST): "no_topic",
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): "no_group",
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): "not_supported",
}
# Metric -> key of what the collector says of a generation.
_COLLECTOR: Final = {
    "python_gc_collections_total": "collections",
    "python_gc_objects_collected_total": "collected",
    "python_gc_objects_uncollectable_total": "uncollectable",
}
# Classes of errors by which messages fail.
_FAILURES: Final = {
    "CommitTimeoutError": "timeout",
    "SystemBusyError": "busy",
    "ServiceUnavailableError": "unavailable",
    "IllegalMessageError": "illegal",
}


class MetricSources:
    """Reads the parts of one broker; for composition only."""

    def __init__(self, ground: Ground, serving: Callable[[], Serving | None], pulse: Pulse) -> None:
        """Binds the parts; `serving` gives None before the broker's port is open."""
        self._ground, self._serving, self._pulse = ground, serving, pulse
        self._begun_ms = ground.clock_ms()
        self._topics = TopicMetrics(ground)
        self.exporter = ExporterMetrics(ground, serving, self._topics.oldest_ms)
        self._certificates = Certificates(ground)
        config = ground.config
        self.common = {
            "cluster": config.cluster_name,
            "broker": config.broker_name,
            "member": config.ledger_self_id,
            "node_type": "broker",
            "node_id": config.broker_name,
            "storage_type": "local",
            "storage_medium": "disk",
            **parse_labels(config.metric_labels),
        }

    def groups(self) -> Iterator[Group]:
        """Returns all families that are served at the moment, with their points."""
        yield from _single(self._process())
        for name, key in _COLLECTOR.items():
            yield FAMILIES[name], _collections(key)
        serving = self._serving()
        if serving is None:
            return
        yield from _single(self._broker(serving))
        yield from self._raft(serving)
        yield from _single(self._disk())
        yield from self._work(serving)
        yield from request_metrics(self._ground, serving)
        if self._ground.leadership.is_serving:
            yield from self._topics.groups(serving)
            yield from leader_metrics(self._ground, serving)

    def _process(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        size, resident = _memory_pages()
        page = os.sysconf("SC_PAGE_SIZE")
        return {
            "process_cpu_seconds_total": usage.ru_utime + usage.ru_stime,
            "process_virtual_memory_bytes": size * page,
            "process_resident_memory_bytes": resident * page,
            "process_open_fds": len(os.listdir("/proc/self/fd")),
            "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "process_start_time_seconds": _started_s(),
        }

    def _broker(self, serving: Serving) -> dict[str, float]:
        ground, proposals = self._ground, serving.proposals
        connections = ground.ports.connections
        config, access, state = ground.config, ground.state.access, ground.state
        return {
            "ledgermq_up_seconds": (ground.clock_ms() - self._begun_ms) / 1000,
            "ledgermq_raft_proposals_pending": proposals.count,
            "ledgermq_raft_proposals_pending_bytes": proposals.bytes,
            "ledgermq_raft_proposals_committed_total": proposals.committed_count,
            "ledgermq_connections": len(connections),
            "ledgermq_connections_refused_total": ground.ports.refused_count,
            "ledgermq_unsent_bytes": sum(one.unsent_bytes for one in connections),
            "ledgermq_parked_pulls": ground.parked.count,
            "ledgermq_acl_alarm": int(access is not None and access.alarm is not None),
            "ledgermq_state_alarm": int(ground.leadership.alarm is not None),
            "rocketmq_broker_permission": config.broker_permission,
            "rocketmq_topic_number": len(state.topics),
            "rocketmq_consumer_group_number": len(state.groups),
        }

    def _raft(self, serving: Serving) -> Iterator[Group]:
        leadership, member = self._ground.leadership, serving.member
        view = member.view()
        numbers: dict[str, float] = {
            "ledgermq_raft_has_leader": int(leadership.leader_id is not None),
            "ledgermq_raft_is_leader": int(leadership.is_leader),
            "ledgermq_raft_is_serving": int(leadership.is_serving),
            "ledgermq_raft_term": leadership.term,
            "ledgermq_raft_members": len(self._ground.config.ledger_peers),
            "ledgermq_raft_leader_changes_total": leadership.leaders_count,
            "ledgermq_ledger_failed": int(leadership.failure is not None),
            "ledgermq_ledger_settings_differ": int(bool(leadership.settings_difference)),
            "ledgermq_clock_difference_seconds": leadership.clock_difference_ms / 1000,
            "ledgermq_clock_alarm": int(bool(leadership.clock_alarm)),
            "ledgermq_log_ahead_seconds": leadership.log_ahead_ms / 1000,
            "ledgermq_ledger_repair_state": _repair_state(leadership.repair, view),
        }
        if isinstance(member, Replica) and view is not None:
            numbers |= {
                "ledgermq_raft_begin_index": view.first_index,
                "ledgermq_raft_last_index": view.last_index,
                "ledgermq_raft_commit_index": member.commit_index,
                "ledgermq_raft_applied_index": member.applied_index,
            }
        yield from _single(numbers)
        if isinstance(member, Replica):
            inbox, answers, entries = member.memory_use
            kept = [(("inbox",), inbox), (("answers",), answers), (("entries",), entries)]
            yield FAMILIES["ledgermq_raft_memory_bytes"], kept
        yield (
            FAMILIES["ledgermq_raft_elections_total"],
            [(("won",), leadership.won_count), (("lost",), leadership.lost_count)],
        )
        yield (
            FAMILIES["ledgermq_raft_proposals_failed_total"],
            _named(serving.proposals.failures, _FAILURES),
        )
        yield _whole("ledgermq_raft_commit_duration_seconds", serving.proposals.times.turns)
        followers = () if view is None else view.followers
        last_index = 0 if view is None else view.last_index
        lacking = FAMILIES["ledgermq_raft_follower_lag_entries"]
        yield lacking, [((one.peer_id,), last_index - one.match_index) for one in followers]
        behind = FAMILIES["ledgermq_raft_follower_lag_bytes"]
        yield behind, [((one.peer_id,), one.behind_bytes) for one in followers]
        contact = FAMILIES["ledgermq_raft_follower_last_contact_seconds"]
        yield contact, [((one.peer_id,), one.silent_ms / 1000) for one in followers]
        trips = FAMILIES["ledgermq_raft_peer_round_trip_seconds"]
        yield trips, [((one.peer_id,), one.round_trips) for one in followers]
        counts = FAMILIES["ledgermq_raft_follower_counts"]
        yield counts, [((one.peer_id,), int(one.is_live and one.counts)) for one in followers]
        yield FAMILIES["ledgermq_raft_peer_rejected"], self._rejected_peers(member.membership)

    def _rejected_peers(self, report: MembershipReport) -> Iterator[Point]:
        """Each peer of the configuration, and others that were rejected as a member."""
        config = self._ground.config
        peer_ids = {one.member_id for one in config.ledger_peers} - {config.ledger_self_id}
        for reason, found in (
            ("membership", report.rejected_peers),
            ("contradiction", report.contradictions),
        ):
            for peer_id in sorted(peer_ids | found.keys()):
                yield (peer_id, reason), int(peer_id in found)

    def _disk(self) -> dict[str, float]:
        ground = self._ground
        disk = os.statvfs(ground.config.store_root)
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        messages, scrub = ground.messages, ground.storage.scrub
        earliest_ms = messages.earliest_store_time()
        age_ms = 0 if earliest_ms is None else max(ground.now_ms() - earliest_ms, 0)
        return {
            "ledgermq_disk_used_ratio": ground.storage.disk_used_percent() / 100,
            "ledgermq_disk_free_bytes": free,
            "ledgermq_disk_size_bytes": total,
            "ledgermq_disk_is_full": int(messages.is_disk_full),
            "ledgermq_log_bytes": messages.max_physical_offset - messages.min_physical_offset,
            "ledgermq_retention_seconds": age_ms / 1000,
            "ledgermq_ledger_scrub_bytes_total": scrub.byte_count,
            "ledgermq_ledger_scrub_rounds_total": scrub.round_count,
            "ledgermq_ledger_corruptions_total": ground.storage.damage_count,
            "rocketmq_storage_flush_behind_bytes": ground.storage.log_files.unsynced_bytes,
            "rocketmq_storage_size_bytes": used,
            "rocketmq_storage_dispatch_behind_bytes": messages.dispatch_behind,
            "rocketmq_storage_message_reserve_time_milliseconds": age_ms,
        }

    def _work(self, serving: Serving) -> Iterator[Group]:
        ground = self._ground
        what = (__version__, platform.python_version(), kernel.describe())
        yield FAMILIES["ledgermq_build_info"], [(what, 1)]
        refused = _named(
            {str(code): count for code, count in ground.dispatcher.refused.items()},
            {str(code): name for code, name in _REFUSALS.items()},
        )
        yield FAMILIES["ledgermq_refused_total"], refused
        times = ground.dispatcher.times
        by_code = {SENDS: serving.proposals.times.sent, **times.by_code}
        durations = [((name_of(code),), seconds) for code, seconds in by_code.items()]
        yield FAMILIES["ledgermq_request_duration_seconds"], durations
        slow = dict.fromkeys(by_code, 0) | times.slow
        slowly = [((name_of(code),), count) for code, count in slow.items()]
        yield FAMILIES["ledgermq_slow_requests_total"], slowly
        storage = ground.storage
        yield _whole("ledgermq_disk_sync_duration_seconds", storage.keeper.sync_seconds)
        yield _whole("ledgermq_disk_write_duration_seconds", storage.log_files.write_seconds)
        yield _whole("rocketmq_message_size_bytes", serving.proposals.message_sizes())
        deleted = [((why.name.lower(),), count) for why, count in storage.dropped_files.items()]
        yield FAMILIES["ledgermq_deleted_files_total"], deleted
        yield _whole("ledgermq_reactor_lag_seconds", self._pulse.lag)
        yield _whole("ledgermq_reactor_turn_seconds", self._pulse.turns)
        levels = serving.processors.delays.offsets()
        delayed = [((str(level),), max(end - done, 0)) for level, (done, end) in levels.items()]
        yield FAMILIES["ledgermq_delayed_messages"], delayed
        if ground.leadership.is_serving:
            age_s = self._half_message_age_s()
            yield FAMILIES["ledgermq_half_message_age_seconds"], [(_NO_LABELS, age_s)]
            counted = serving.processors.transactions.count_open()
            half = (None if count is None else (_NO_LABELS, count) for count in counted)
            yield FAMILIES["rocketmq_half_messages"], half
        waiting = (("send", serving.proposals.count), ("pull", ground.parked.count))
        yield (
            FAMILIES["rocketmq_processor_watermark"],
            [((name,), count) for name, count in waiting],
        )
        yield FAMILIES["ledgermq_certificate_expiry_seconds"], self._certificates.points()

    def _half_message_age_s(self) -> float:
        """Of the first that the last round of checks found without an end."""
        messages, offsets = self._ground.messages, self._ground.state.offsets
        offset = offsets.find(HALF_GROUP, names.HALF_TOPIC, 0) or 0
        offset = max(offset, messages.min_offset(names.HALF_TOPIC, 0))
        stored_ms = messages.store_time(names.HALF_TOPIC, 0, offset)
        if not stored_ms or offset >= messages.max_offset(names.HALF_TOPIC, 0):
            return 0.0
        return max(self._ground.now_ms() - stored_ms, 0) / 1000


class Certificates:
    """When the certificates end that a broker serves with.

    Files are read again when they have changed, and judged as the ports judge them: of a
    certificate that cannot be used, for want of its key for instance, nothing is told, for the
    ports go on with the former one.
    """

    def __init__(self, ground: Ground) -> None:
        """Binds the configuration and the clock."""
        config = ground.config
        self._files = {
            "clients": config.tls_file if ground.tls.server is not None else "",
            "members": config.member_tls_file,
            "http": config.http_tls_file,
        }
        self._now_ms = ground.now_ms
        # By port: when its files were changed.
        self._looks: dict[str, list[int]] = {}
        # By port: when its certificate ends, in seconds since 1970.
        self._ends_s: dict[str, float] = {}

    def points(self) -> Iterator[Point]:
        """Returns the seconds left, negative when it is over; nothing for what cannot be read."""
        for port, tls_file in self._files.items():
            if tls_file:
                with contextlib.suppress(OSError, ValueError, KeyError, TlsError):
                    self._look(port, tls_file)
                if port in self._ends_s:
                    yield (port,), self._ends_s[port] - self._now_ms() / 1000

    def _look(self, port: str, tls_file: str) -> None:
        settings = read_tls_file(tls_file)
        named = settings["tls.server.certPath"], settings["tls.server.keyPath"]
        certificate, key = (Path(path).expanduser() for path in named)
        looks = [
            path.stat().st_mtime_ns for path in (Path(tls_file).expanduser(), certificate, key)
        ]
        if looks != self._looks.get(port):
            self._looks[port] = looks
            server_context(settings)
            self._ends_s[port] = certificate_end_s(certificate.read_bytes())


def certificate_end_s(data: bytes) -> float:
    """Returns when the first certificate of a file ends, in seconds since 1970.

    Raises:
        ValueError: there is none.
    """
    # Only who has a certificate has the library loaded for it.
    x509: Any = importlib.import_module("cryptography.x509")
    end_s: float = x509.load_pem_x509_certificate(data).not_valid_after_utc.timestamp()
    return end_s


def _single(numbers: dict[str, float]) -> Iterator[Group]:
    for name, number in numbers.items():
        yield FAMILIES[name], [(_NO_LABELS, number)]


def _whole(name: str, histogram: Any) -> Group:
    return FAMILIES[name], [(_NO_LABELS, histogram)]


def _named(counts: dict[str, int], names: dict[str, str]) -> list[Point]:
    """Counts by names; those of no name come together, and all names are there from the start."""
    sums = dict.fromkeys((*names.values(), "other"), 0)
    for key, count in counts.items():
        sums[names.get(key, "other")] += count
    return [((name,), count) for name, count in sums.items()]


def _repair_state(repair: str | None, view: MemberView | None) -> int:
    if view is not None and view.is_recovering:
        return 2
    return 0 if repair is None else 1


def _collections(key: str) -> Iterator[Point]:
    for generation, stats in enumerate(gc.get_stats()):
        yield (str(generation),), stats[key]


def _memory_pages() -> tuple[int, int]:
    size, resident, *_ = Path("/proc/self/statm").read_text().split()
    return int(size), int(resident)


def _started_s() -> float:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    return round(time.time() - uptime_s + ticks / os.sysconf("SC_CLK_TCK"), 2)
