"""Runs of mqadmin's subcommands, and how the answers of two brokers are compared.

An answer is a set of lines in which everything that may differ from run to run has been replaced:
addresses, ids, times, figures, names of brokers. Two answers are the same when the sets are; a case
may name lines that only one side has, and must say why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tests.interop.closed import is_on
from tests.interop.mqadmin import CLUSTER_NAME

TOPIC: Final = "AdminTopic"
WORK_TOPIC: Final = "WorkTopic"
GROUP: Final = "admin_watchers"

# What is replaced, in this order.
_REPLACEMENTS: Final = (
    (r"\s+", " "),
    (r"\b\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d(?:[:.,]\d+)?|\bN/A\b", "TIME"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:@[\w.#-]+)*", "ADDRESS"),
    (r"\b[0-9A-F]{24,64}\b", "ID"),
    # A group has followers, the stock broker has none.
    (r'("?)ADDRESS\1(?:, ?\d+[:=]\1ADDRESS\1)+', r"\1ADDRESS\1"),
    # Objects without a text of their own.
    (r"@[0-9a-f]{4,8}\b|\$\$Lambda\S*", ""),
    (r"\b(?:key|w)\d+\b", "KEY"),
    (r"(DESC: ).*", r"\1..."),
    (r"(commitLogDiskRatio_)[^: ]+", r"\1PATH"),
    (r"(?<![\w<])/[\w./#-]+", "PATH"),
    (r"-?\b\d+(?:\.\d+)?(?:E-?\d+)?(?:ms)?\b", "#"),
    (r"\b(kind|eval)=\w+", r"\1=..."),
    # Fewer rates at first, and what depends on the settings.
    (r"(\w+Tps) :.*", r"\1 : ..."),
    (r'("?(?:brokerRole|flushDiskType)"? ?[:=]) ?.*', r"\1 ..."),
    (r"# [KMG]?i?B\b", "# B"),
)
# Lines of logs, of stack traces, and where to read more about an error.
_NOISE: Final = re.compile(
    r"^\s*(?:\d\d:\d\d:\d\d\.\d+ |at |\.\.\. \d+ more|RocketMQLog:WARN|See |For more information)"
)


# A stock broker makes the first of these topics when it first looks for half messages, a minute
# after its start: it is in lists that are asked for later. The other is made on either side by the
# first tool that lives for long enough to send a heart beat.
_LATE_TOPIC: Final = re.compile(
    r"(?:DefaultCluster )?RMQ_SYS_TRANS_HALF_TOPIC(?: # # # NO_CONSUMER)?"
    r'|(?:"topicName":)?"%RETRY%TOOLS_CONSUMER"(?::\{|,)'
)


class Side(Protocol):
    """One of the two clusters, as a case sees it."""

    namesrv: str
    broker: str
    broker_name: str
    message_id: str
    unique_id: str
    client_id: str
    folder: Path


Arguments = Callable[[Side], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of one subcommand."""

    name: str
    arguments: Arguments
    # Lines that only ours, or only the stock broker, may have, by regular expressions; and why.
    ours_only: str = ""
    stock_only: str = ""
    why: str = ""
    # Something that both answers must hold, so that two empty ones are no match; and in closed
    # mode, where that is another thing.
    must_hold: str
    must_hold_closed: str = ""
    # Lines that only one side may have in closed mode, whichever it is.
    differs_closed: str = ""
    # A file below the folder of the side that was written.
    file: str = ""
    # For what goes on for ever: after so many lines it is interrupted.
    cut_lines: int = 0
    # Asked until it holds `must_hold`: that comes true a little later.
    is_awaited: bool = False
    # Of the program that runs it.
    command: str = "run"

    @property
    def wanted(self) -> str:
        """What both answers must hold in this run."""
        return (is_on() and self.must_hold_closed) or self.must_hold


def lines_of(text: str, side: Side) -> frozenset[str]:
    """Returns an answer without what may differ."""
    lines = set()
    text = text.replace(side.broker_name, "BROKER").replace(str(side.folder), "/FOLDER")
    for line in text.splitlines():
        if _NOISE.search(line):
            continue
        for pattern, replacement in _REPLACEMENTS:
            line = re.sub(pattern, replacement, line)
        if line.strip() and not _LATE_TOPIC.fullmatch(line.strip()):
            lines.add(line.strip())
    return frozenset(lines)


def unexplained(case: Case, stock: frozenset[str], ours: frozenset[str]) -> list[str]:
    """Returns the lines that only one side has, and that the case does not allow, marked."""
    if is_on() and case.differs_closed:
        stock, ours = (
            frozenset(line for line in lines if not re.fullmatch(case.differs_closed, line))
            for lines in (stock, ours)
        )
    wrong = [f"- {line}" for line in sorted(stock - ours) if not _allows(case.stock_only, line)]
    return wrong + [
        f"+ {line}" for line in sorted(ours - stock) if not _allows(case.ours_only, line)
    ]


def _allows(pattern: str, line: str) -> bool:
    return bool(pattern) and re.fullmatch(pattern, line) is not None


def _cluster(*words: str) -> Arguments:
    return lambda side: ["-c", CLUSTER_NAME, *words]


def _broker(*words: str) -> Arguments:
    return lambda side: ["-b", side.broker, *words]


def _plain(*words: str) -> Arguments:
    return lambda side: list(words)


def _export(*words: str) -> Arguments:
    return lambda side: ["-c", CLUSTER_NAME, "-f", str(side.folder / "export"), *words]


def _message(*words: str) -> Arguments:
    return lambda side: ["-i", side.message_id, *words]


def _queue_of_broker(flag: str, *words: str) -> Arguments:
    return lambda side: ["-t", TOPIC, flag, side.broker_name, "-i", "0", *words]


def _case(name: str, arguments: Arguments, must_hold: str, **more: Any) -> Case:
    return Case(name=name, arguments=arguments, must_hold=must_hold, **more)


# Where the group stands in its retry topic, with the address of the member that has the queue.
_SHARED: Final = r"%RETRY%\S+ +\S+ +0 +\d+ +\d+ +\d+\.\d+"
_CONSUMED: Final = "trackType=CONSUMED,"
_SETTING: Final = r"[\w.]+ =.*"
_SETTINGS_DIFFER: Final = "settings that have no effect here are not told, our own are"
_FIGURE: Final = (
    r"(?:ADDRESS )?(?:ledger\w+|state\w+|accessAlarm|putLatency\d+|getMessageSizeTotal"
    r"|remainHowManyDataToCommit) :.*"
)
_TIMES: Final = r"(?:ADDRESS )?putMessageDistributeTime :.*"
_FIGURES_DIFFER: Final = "figures of the ledger are added, times of puts are not counted"
_ACCOUNT: Final = (
    "-a", "made-app", "-s", "secret-12", "-i", "DENY", "-u", "SUB", "-t", "a=PUB,b=SUB",
    "-g", "g=SUB", "-m", "false",
)  # fmt: skip

CASES: Final = (
    # Topics.
    _case("updateTopic", _cluster("-t", "Made", "-r", "2", "-w", "2"), "create topic to"),
    _case("updateTopic", _broker("-t", "Ordered", "-o", "true"), "set broker orderConf"),
    _case("updateTopicPerm", _broker("-t", TOPIC, "-p", "4"), "success"),
    _case("updateTopicPerm", _broker("-t", TOPIC, "-p", "6"), "success", is_awaited=True),
    _case("topicRoute", _plain("-t", TOPIC), "brokerDatas"),
    _case("topicRoute", _plain("-t", TOPIC, "-l"), "ReadQueue"),
    _case("topicStatus", _plain("-t", TOPIC), "#Max Offset"),
    _case("topicClusterList", _plain("-t", TOPIC), CLUSTER_NAME),
    _case("topicList", _plain(), TOPIC),
    _case("topicList", _plain("-c"), "#Consumer Group"),
    _case("updateOrderConf", _plain("-t", TOPIC, "-m", "put", "-v", "b:4"), "success"),
    _case("updateOrderConf", _plain("-t", TOPIC, "-m", "get"), "b:4"),
    _case("updateOrderConf", _plain("-t", TOPIC, "-m", "delete"), "success"),
    _case("allocateMQ", _plain("-t", TOPIC, "-i", "10.0.0.1,10.0.0.2"), "result"),
    _case("statsAll", _plain(), "#Accumulation"),
    _case("statsAll", _plain("-t", WORK_TOPIC), GROUP),
    # Groups.
    _case("updateSubGroup", _cluster("-g", "made_group"), "create subscription group to"),
    _case("getConsumerConfig", _plain("-g", "made_group"), "retryMaxTimes"),
    _case("consumerConnection", _plain("-g", GROUP), "#ClientId"),
    _case("producerConnection", _plain("-g", "tour_producers", "-t", WORK_TOPIC), "tour"),
    _case("producerConnection", _plain("-g", "no_such_group", "-t", TOPIC), "not exist"),
    # A consumer tells its offsets for the first time after ten seconds.
    _case("consumerProgress", _plain("-g", GROUP), rf"%RETRY%{GROUP}[\s\S]*Diff Total",
          is_awaited=True),
    _case("consumerProgress", _plain("-g", GROUP, "-s", "true"), _SHARED, is_awaited=True),
    _case("consumerProgress", _plain(), GROUP),
    _case("consumerStatus", lambda side: ["-g", GROUP, "-i", side.client_id], "#Consumer"),
    _case("consumerStatus", _plain("-g", GROUP), "Rebalance OK", is_awaited=True),
    _case("brokerConsumeStats", _broker(), "#Diff"),
    _case("cloneGroupOffset", _plain("-s", GROUP, "-d", "made_group", "-t", TOPIC, "-o", "true"),
          "success"),
    _case("resetOffsetByTime", _plain("-g", GROUP, "-t", WORK_TOPIC, "-s", "now"), "#offset"),
    _case("resetOffsetByTime", _plain("-g", "made_group", "-t", TOPIC, "-s", "0"), "#rollback"),
    _case("skipAccumulatedMessage", _plain("-g", GROUP, "-t", WORK_TOPIC), "#offset"),
    # Messages.
    _case("queryMsgById", _message(), _CONSUMED, is_awaited=True),
    _case("queryMsgById", lambda side: ["-i", side.message_id, "-g", GROUP, "-d", side.client_id],
          "consumeResult=CR_SUCCESS"),
    _case("queryMsgByKey", _plain("-t", TOPIC, "-k", "key7"), "#QID"),
    _case("queryMsgByUniqueKey", lambda side: ["-t", TOPIC, "-i", side.unique_id], _CONSUMED,
          is_awaited=True),
    _case("queryMsgByOffset", _queue_of_broker("-b", "-o", "0"), _CONSUMED, is_awaited=True),
    _case("QueryMsgTraceById", lambda side: ["-i", side.unique_id], "#ClientHost",
          is_awaited=True),
    _case("printMsg", _plain("-t", TOPIC, "-d", "true"), "MSGID"),
    _case("printMsgByQueue", _queue_of_broker("-a", "-p", "true", "-d", "true"), "MSGID"),
    _case("consumeMessage", _plain("-t", TOPIC, "-g", "admin_reader", "-c", "3"), "Consume ok"),
    _case("queryCq", _plain("-t", TOPIC, "-q", "0", "-i", "0", "-c", "3", "-g", GROUP), "idx: 2",
          stock_only=r'"bloomFilterData":\{|"bitNum":#,|"bitPos":\[.*|\},',
          why="there are no bloom filters"),
    _case("sendMessage", _plain("-t", TOPIC, "-p", "hello", "-k", "k1"), "SEND_OK",
          is_awaited=True),
    _case("sendMsgStatus", lambda side: ["-b", side.broker_name, "-s", "128", "-c", "3"],
          "SEND_OK"),
    _case("checkMsgSendRT", _plain("-t", TOPIC, "-a", "5", "-s", "128"), "#RT"),
    _case("clusterRT", _plain("-a", "3", "-s", "128", "-i", "600"), "#RT", cut_lines=2),
    # Brokers.
    _case("clusterList", _plain(), "#Version"),
    _case("clusterList", _plain("-m"), "#InTotalYest"),
    _case("brokerStatus", _broker(), "commitLogMaxOffset", ours_only=f"{_FIGURE}|{_TIMES}",
          stock_only=_TIMES, why=_FIGURES_DIFFER),
    _case("brokerStatus", _cluster(), "commitLogMaxOffset", ours_only=f"{_FIGURE}|{_TIMES}",
          stock_only=_TIMES, why=_FIGURES_DIFFER),
    _case("getBrokerConfig", _broker(), "brokerName", ours_only=_SETTING, stock_only=_SETTING,
          why=_SETTINGS_DIFFER),
    _case("updateBrokerConfig", _broker("-k", "brokerPermission", "-v", "6"), "success"),
    _case("updateBrokerConfig", _cluster("-k", "rejectTransactionMessage", "-v", "false"),
          "success"),
    _case("cleanExpiredCQ", _broker(), "success"),
    _case("cleanUnusedTopic", _cluster(), "success"),
    # Name servers.
    _case("updateKvConfig", _plain("-s", "ns", "-k", "k", "-v", "v"), "success"),
    _case("deleteKvConfig", _plain("-s", "ns", "-k", "k"), "success"),
    _case("wipeWritePerm", _plain("-b", "no-such-broker"), "wipe write perm"),
    _case("addWritePerm", _plain("-b", "no-such-broker"), "add write perm"),
    _case("updateNamesrvConfig", _plain("-k", "orderMessageEnable", "-v", "true"), "success"),
    _case("getNamesrvConfig", _plain(), "orderMessageEnable *= *true", ours_only=_SETTING,
          stock_only=_SETTING, why=_SETTINGS_DIFFER),
    # Exports, and the monitor.
    _case("exportMetadata", _export(), "success", file="export/metadata.json"),
    _case("exportMetadata", _export("-t", "-s"), "success", file="export/topic.json"),
    _case("exportMetadata", _export("-g"), "success", file="export/subscriptionGroup.json"),
    _case("exportConfigs", _export(), "success", file="export/configs.json",
          differs_closed=r'"useTLS":"(true|false)",?'),
    _case("exportMetrics", _export(), "success", file="export/metrics.json"),
    # It finds its own consumer in a round or in the next one; that one signs nothing.
    _case("startMonitoring", _plain(), rf"%RETRY%__MONITOR_CONSUMER\n[\s\S]*running {WORK_TOPIC}",
          must_hold_closed=f"running {WORK_TOPIC}",
          differs_closed=r"running (%RETRY%__MONITOR_CONSUMER|OFFSET_MOVED_EVENT)",
          command="monitor", is_awaited=True),
    # Access control.
    _case("updateAclConfig", _cluster(*_ACCOUNT), "success"),
    _case("updateGlobalWhiteAddr", _cluster("-g", "127.0.0.1,10.0.0.1"), "success"),
    _case("getAccessConfigSubCommand", _cluster(), "made-app", is_awaited=True),
    _case("clusterAclConfigVersion", _cluster(), "Version"),
    _case("deleteAccessConfig", _cluster("-a", "made-app"), "success"),
    # Away again.
    _case("deleteTopic", _cluster("-t", "Made"), "delete topic"),
    _case("deleteSubGroup", _cluster("-g", "made_group", "-r", "true"),
          "delete subscription group"),
)  # fmt: skip
