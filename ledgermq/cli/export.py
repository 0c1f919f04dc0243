"""Admin commands that take what a cluster holds out of it: exportMetadata, exportConfigs,
exportMetrics.

With ``-f DIR`` a JSON file of mqadmin's name and shape is written there; with ``--json`` the same
is printed; otherwise a table. Source: ExportMetadataCommand.java, ExportConfigsCommand.java,
ExportMetricsCommand.java of 4.9.3.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ledgermq.cli.remote import AdminError, RefusedError, Remote
from ledgermq.cli.status import read_settings
from ledgermq.cli.subcommand import (
    Flag,
    Row,
    Subcommand,
    add_broker_or_cluster,
    chosen_brokers,
    flag_adder,
)
from ledgermq.cli.table import print_table
from ledgermq.cli.topic import counted
from ledgermq.protocol.bodies import (
    BrokerStatsData,
    ConsumerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
)
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import GetConsumerConnectionListRequestHeader
from ledgermq.protocol.route import (
    MASTER_ID,
    KVTable,
    TopicConfig,
    TopicConfigTableBody,
    TopicList,
)
from ledgermq.state.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX

# Groups of tools and clients, which belong to no user.
_SYSTEM_GROUPS: Final = frozenset(
    ("DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER",
     "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
     "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER")
)  # fmt: skip
# What mqadmin takes of a broker's settings.
_SETTINGS: Final = (
    "autoCreateSubscriptionGroup", "autoCreateTopicEnable", "brokerClusterName", "brokerId",
    "brokerName", "brokerRole", "fileReservedTime", "filterServerNums", "flushDiskType",
    "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS",
)  # fmt: skip
_CLUSTER: Final = Flag("-c", "clusterName", "the cluster")
_FOLDER: Final = Flag("-f", "filePath", "folder to write a JSON file to; default: print", None)

Document = dict[str, Any]


def _give(
    options: argparse.Namespace, name: str, document: Document, columns: tuple[str, ...],
    rows: list[Row],
) -> None:  # fmt: skip
    """Writes or prints what was found."""
    if options.filePath is not None:
        path = Path(options.filePath) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise AdminError(f"{path}: {error.strerror}") from error
        print_table(("exported",), [(str(path),)], options.json)
    elif options.json:
        print(json.dumps(document, indent=1))
    else:
        print_table(columns, rows, False)


# Topics and groups.


def _export_metadata(remote: Remote, options: argparse.Namespace) -> None:
    topics: dict[str, Document] = {}
    groups: dict[str, Document] = {}
    for address in chosen_brokers(remote, options):
        for topic, config in _user_topics(remote, address, options.specialTopic).items():
            entry = json.loads(config.encode())
            for key in ("readQueueNums", "writeQueueNums"):
                entry[key] += topics.get(topic, {key: 0})[key]
            topics[topic] = entry
        for group, settings in _user_groups(remote, address).items():
            entry = json.loads(settings.encode())
            entry["retryQueueNums"] += groups.get(group, {"retryQueueNums": 0})["retryQueueNums"]
            groups[group] = entry
    document: Document = {}
    name = "metadata.json"
    if not options.subscriptionGroup:
        document["topicConfigTable"] = dict(sorted(topics.items()))
    if not options.topic:
        document["subscriptionGroupTable"] = dict(sorted(groups.items()))
    if options.topic or options.subscriptionGroup:
        name = "topic.json" if options.topic else "subscriptionGroup.json"
    rows: list[Row] = [
        ("topic", topic, entry["readQueueNums"], entry["writeQueueNums"], entry["perm"], "")
        for topic, entry in document.get("topicConfigTable", {}).items()
    ]
    rows += [
        ("group", group, "", "", "", entry["retryMaxTimes"])
        for group, entry in document.get("subscriptionGroupTable", {}).items()
    ]
    document["exportTime"] = time.time_ns() // 1_000_000
    _give(options, name, document, ("kind", "name", "read", "write", "perm", "retries"), rows)


def _user_topics(remote: Remote, address: str, with_special: bool) -> dict[str, TopicConfig]:
    """The topics of a broker that are not the system's."""
    answer = remote.call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigTableBody.decode(answer.body).topic_config_table
    listed = remote.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    system = set(TopicList.decode(listed.body).topic_list)
    prefixes = () if with_special else (RETRY_PREFIX, DEAD_LETTER_PREFIX)
    return {
        topic: config
        for topic, config in sorted(table.items())
        if topic not in system and not topic.startswith(prefixes)
    }


def _user_groups(remote: Remote, address: str) -> dict[str, SubscriptionGroupConfig]:
    answer = remote.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = SubscriptionGroupTableBody.decode(answer.body).subscription_group_table
    return {
        group: settings
        for group, settings in sorted(table.items())
        if group not in _SYSTEM_GROUPS and not group.startswith(SYSTEM_GROUP_PREFIX)
    }


# Settings.


def _export_settings(remote: Remote, options: argparse.Namespace) -> None:
    info = remote.clusters()
    masters = remote.masters(options.clusterName)
    brokers: dict[str, Document] = {}
    for address in masters:
        settings = read_settings(remote.call(address, RequestCode.GET_BROKER_CONFIG))
        brokers[settings.get("brokerName", address)] = {
            key: settings[key] for key in _SETTINGS if key in settings
        }
    addresses = [
        address
        for name in info.cluster_addr_table[options.clusterName]
        for address in info.broker_addr_table[name].broker_addrs.values()
    ]
    document = {
        "brokerConfigs": dict(sorted(brokers.items())),
        "clusterScale": {
            "namesrvSize": len(remote.name_servers),
            "masterBrokerSize": len(masters),
            "slaveBrokerSize": len(addresses) - len(masters),
        },
    }
    rows: list[Row] = [
        (broker, key, value)
        for broker, settings in sorted(brokers.items())
        for key, value in sorted(settings.items())
    ]
    _give(options, "configs.json", document, ("broker", "key", "value"), rows)


# Figures.


def _export_figures(remote: Remote, options: argparse.Namespace) -> None:
    info = remote.clusters()
    masters = set(remote.masters(options.clusterName))
    report: dict[str, Document] = {}
    for name in sorted(info.cluster_addr_table[options.clusterName]):
        address = info.broker_addr_table[name].broker_addrs.get(MASTER_ID)
        if address in masters and address is not None:
            report[name] = _figures_of(remote, address)
    quotas = [one["runtimeQuota"] for one in report.values()]
    totals = {
        f"total{key[0].upper()}{key[1:]}": sum(quota["tps"][key] for quota in quotas)
        for key in ("normalInTps", "normalOutTps", "transInTps", "scheduleInTps")
    }
    counts = {
        f"{kind}OneDay{way}Num": sum(
            quota["oneDayNum"][f"{kind}OneDay{way}Num"] for quota in quotas
        )
        for kind, way in (("normal", "In"), ("normal", "Out"), ("trans", "In"), ("schedule", "In"))
    }
    document: Document = {
        "evaluateReport": report,
        "totalData": {"totalTps": totals, "totalOneDayNum": counts},
    }
    rows: list[Row] = [
        (broker, f"{part}.{key}", value)
        for broker, parts in report.items()
        for part, figures in parts.items()
        for key, value in _flat(figures)
    ]
    _give(options, "metrics.json", document, ("broker", "figure", "value"), rows)


def _flat(figures: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in figures.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            text = ", ".join(value) if isinstance(value, list) else value
            found.append((f"{prefix}{key}", "" if text is None else text))
    return found


def _figures_of(remote: Remote, address: str) -> Document:
    told = KVTable.decode(remote.call(address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    groups = _user_groups(remote, address)
    transactions = counted(remote, address, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC")
    delayed = counted(remote, address, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")
    return {
        "runtimeEnv": {"totalMemKBytes": told.get("totalMemKBytes")},
        "runtimeQuota": {
            "diskRatio": {
                key: told.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")
            },
            "tps": {
                "normalInTps": _first_rate(told, "putTps"),
                "normalOutTps": _first_rate(told, "getTransferedTps"),
                "transInTps": transactions.stats_minute.tps,
                "scheduleInTps": delayed.stats_minute.tps,
            },
            "oneDayNum": {
                "normalOneDayInNum": _of_yesterday(told, "msgPutTotal"),
                "normalOneDayOutNum": _of_yesterday(told, "msgGetTotal"),
                "transOneDayInNum": _longest_sum(transactions),
                "scheduleOneDayInNum": _longest_sum(delayed),
            },
            "messageAverageSize": told.get("putMessageAverageSize"),
            "topicSize": len(_user_topics(remote, address, False)),
            "groupSize": len(groups),
        },
        "runtimeVersion": {
            "rocketmqVersion": told.get("brokerVersionDesc"),
            "clientInfo": _clients(remote, address, list(groups)),
        },
    }


def _first_rate(told: Mapping[str, str], key: str) -> float:
    """Of three rates, the one of the last ten seconds."""
    words = told.get(key, "").split()
    return _figure(key, words[0]) if words else 0.0


def _of_yesterday(told: Mapping[str, str], prefix: str) -> int:
    today, yesterday = f"{prefix}TodayMorning", f"{prefix}YesterdayMorning"
    figures = [_figure(key, told.get(key, "0")) for key in (today, yesterday)]
    return int(figures[0] - figures[1])


def _figure(key: str, text: str) -> float:
    """Reads what a broker tells.

    Raises:
        AdminError: it is no number.
    """
    with contextlib.suppress(ValueError):
        if len(text) < 32 and math.isfinite(number := float(text)):
            return int(text) if text.isdigit() else number
    raise AdminError(f"a broker tells {key}={text[:64]!r}, which is no number")


def _longest_sum(data: BrokerStatsData) -> int:
    return data.stats_day.sum or data.stats_hour.sum or data.stats_minute.sum


def _clients(remote: Remote, address: str, groups: list[str]) -> list[str]:
    """Languages and versions of the consumers that are online."""
    found: set[str] = set()
    for group in groups:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        try:
            answer = remote.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except RefusedError:
            # Nobody of this group is online.
            continue
        for one in ConsumerConnection.decode(answer.body).connection_set:
            found.add(f"{one.language}%{one.version}")
    return sorted(found)


def _add_metadata(parser: argparse.ArgumentParser) -> None:
    add_broker_or_cluster(parser)
    flag_adder(_FOLDER)(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-t", "--topic", action="store_true", help="topics only")
    what.add_argument(
        "-g", "--subscriptionGroup", "--subscription-group", action="store_true", help="groups only"
    )
    parser.add_argument(
        "-s", "--specialTopic", action="store_true", help="topics of retries and dead letters, too"
    )


SUBCOMMANDS: Final = {
    "exportMetadata": Subcommand("all topics and groups", _add_metadata, _export_metadata),
    "exportConfigs": Subcommand(
        "settings of the brokers of a cluster", flag_adder(_CLUSTER, _FOLDER), _export_settings
    ),
    "exportMetrics": Subcommand(
        "figures of the brokers of a cluster", flag_adder(_CLUSTER, _FOLDER), _export_figures
    ),
}
