"""The broker about itself: runtime information (28), configuration (26), delay progress (45).

Only what is counted or measured here is told; keys that tools parse and that have no meaning in
this broker are 0. Source: `AdminBrokerProcessor.prepareRuntimeInfo`, `StoreStatsService.java`.
"""

import os
from collections.abc import Callable
from typing import Final, Protocol

from ledgermq.broker.config.broker_config import BrokerConfig, effective_properties
from ledgermq.broker.counts.rates import Rates
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.pulls.long_polling import ParkedPulls
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.waits.delay import DelayedDelivery
from ledgermq.commitlog import used_ratio
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import VERSION_4_9_3, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetBrokerConfigResponseHeader
from ledgermq.protocol.properties_file import format_properties
from ledgermq.protocol.route import KVTable
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.broker_state import BrokerState

_GIB: Final = 1 << 30


class LogState(Protocol):
    """What is needed of a message store."""

    @property
    def min_physical_offset(self) -> int: ...

    @property
    def max_physical_offset(self) -> int: ...

    @property
    def dispatch_behind(self) -> int: ...

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int | None: ...


class AdminProcessor:
    """Tells about the broker."""

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        state: BrokerState,
        proposals: Proposals,
        pulls: PullProcessor,
        parked: ParkedPulls,
        rates: Rates,
        store: LogState,
        delays: DelayedDelivery,
        now_ms: Callable[[], int],
    ) -> None:
        """Binds the parts; `now_ms` is the wall clock."""
        self._config = config
        self._leadership = leadership
        self._state = state
        self._proposals = proposals
        self._pulls = pulls
        self._parked = parked
        self._rates = rates
        self._store = store
        self._delays = delays
        self._now_ms = now_ms
        self._boot_ms = now_ms()

    def config(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_BROKER_CONFIG (26): every key with the value in force."""
        text = format_properties(
            {
                **effective_properties(self._config),
                "brokerId": str(self._leadership.broker_id),
                "brokerRole": self._role(),
                # Tools fail without these, and take the last for the number of processors.
                "filterServerNums": "0",
                "useTLS": "true" if self._config.uses_tls else "false",
                "clientCallbackExecutorThreads": str(os.cpu_count() or 1),
            }
        )
        version = lenient_json.write(self._state.topics.version.to_json()).decode()
        return command.response(
            ResponseCode.SUCCESS,
            header=GetBrokerConfigResponseHeader(version=version),
            body=text.encode("utf-8"),
        )

    def _role(self) -> str:
        """As configured without a ledger; a leader waits for others, and followers are slaves."""
        if self._config.wants_plain_log:
            return self._config.broker_role
        return "SYNC_MASTER" if self._leadership.is_serving else "SLAVE"

    def runtime_info(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_BROKER_RUNTIME_INFO (28)."""
        return command.response(ResponseCode.SUCCESS, body=KVTable(self.runtime_table()).encode())

    def runtime_table(self) -> dict[str, str]:
        """Returns what the runtime information says."""
        return {
            **self._identity(),
            **self._traffic(),
            **self._queues(),
            **self._log(),
            **{
                f"scheduleMessageOffset_{level}": f"{delivered},{end}"
                for level, (delivered, end) in self._delays.offsets().items()
            },
        }

    def delay_offsets(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_ALL_DELAY_OFFSET (45): what delayOffset.json holds, for a follower that asks."""
        table = {"offsetTable": self._state.progress.levels()}
        return command.response(ResponseCode.SUCCESS, body=lenient_json.write(table))

    def _identity(self) -> dict[str, str]:
        leadership, access = self._leadership, self._state.access
        return {
            "brokerVersion": str(VERSION_4_9_3),
            "brokerVersionDesc": "V4_9_3",
            "bootTimestamp": str(self._boot_ms),
            "runtime": runtime_text(self._now_ms() - self._boot_ms),
            "startAcceptSendRequestTimeStamp": str(self._config.accept_sends_from_ms),
            "ledgerRole": leadership.role,
            "ledgerTerm": str(leadership.term),
            "ledgerLeaderId": leadership.leader_id or "",
            "ledgerSelfId": self._config.ledger_self_id,
            "ledgerMembers": ",".join(sorted(one.member_id for one in self._config.ledger_peers)),
            "ledgerClusterId": leadership.cluster_id,
            "ledgerBootstrap": leadership.bootstrap,
            "ledgerRejectedPeers": leadership.rejected_peers,
            "ledgerFollowers": leadership.followers,
            "ledgerFollowerReads": leadership.tell_reads(),
            "ledgerAlarm": leadership.membership_alarm or "",
            "ledgerRepair": leadership.failure or leadership.repair or "",
            "ledgerSettings": leadership.settings_difference,
            "ledgerClock": leadership.clock_alarm,
            "ledgerClockDifferenceMs": str(leadership.clock_difference_ms),
            "ledgerTimeAheadMs": str(leadership.log_ahead_ms),
            "ledgerSyncMs": str(leadership.tell_sync_ms()),
            "stateAlarm": leadership.alarm or "",
            **self._state.formats.describe(),
            "accessAlarm": (access.alarm if access is not None else None) or "",
        }

    def _traffic(self) -> dict[str, str]:
        proposals, pulls, rates = self._proposals, self._pulls, self._rates
        count, times = proposals.committed_count, proposals.times
        return {
            "putTps": rates.text("put"),
            "getFoundTps": rates.text("found"),
            "getMissTps": rates.text("missed"),
            "getTotalTps": rates.text("total"),
            "getTransferedTps": rates.text("transferred"),
            "putMessageTimesTotal": str(count),
            "putMessageFailedTimes": str(proposals.failed_count),
            "putMessageSizeTotal": str(proposals.committed_bytes),
            "getMessageSizeTotal": str(pulls.message_bytes),
            "putMessageAverageSize": str(proposals.committed_bytes / count if count else 0.0),
            "putMessageEntireTimeMax": str(int(times.longest_ms)),
            "getMessageEntireTimeMax": "0",
            "putMessageDistributeTime": times.text(),
            "putLatency99": str(times.latency_ms(0.99)),
            "putLatency999": str(times.latency_ms(0.999)),
            "msgPutTotalTodayNow": str(count),
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayNow": str(pulls.message_count),
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalYesterdayMorning": "0",
        }

    def _queues(self) -> dict[str, str]:
        config = self._config
        return {
            "sendThreadPoolQueueSize": str(self._proposals.count),
            "sendThreadPoolQueueCapacity": str(config.waiting_sends_max),
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueSize": str(self._parked.count),
            "pullThreadPoolQueueCapacity": str(config.parked_pulls_max),
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueCapacity": "0",
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
            "pageCacheLockTimeMills": "0",
            "dispatchMaxBuffer": "0",
            "remainTransientStoreBufferNumbs": "2147483647",
        }

    def _log(self) -> dict[str, str]:
        store = self._store
        disk = os.statvfs(self._config.store_root)
        total = disk.f_blocks * disk.f_frsize
        free = disk.f_bavail * disk.f_frsize
        # By the measure at which messages are refused: what only root may take counts as neither.
        ratio = str(round(used_ratio(total, disk.f_bfree * disk.f_frsize, free), 4))
        earliest = store.earliest_store_time()
        return {
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.max_physical_offset),
            "dispatchBehindBytes": str(store.dispatch_behind),
            "earliestMessageTimeStamp": str(-1 if earliest is None else earliest),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{self._config.store_root}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": (
                f"Total : {total / _GIB:.1f} GiB, Free : {free / _GIB:.1f} GiB."
            ),
            "remainHowManyDataToFlush": "0 B",
            "remainHowManyDataToCommit": "0 B",
        }


def runtime_text(uptime_ms: int) -> str:
    """Returns a time span as upstream prints it."""
    seconds = uptime_ms // 1000
    return (
        f"[ {seconds // 86_400} days, {seconds // 3600 % 24} hours,"
        f" {seconds // 60 % 60} minutes, {seconds % 60} seconds ]"
    )
