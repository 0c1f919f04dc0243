"""Changes of brokers: accounts, settings, the permission to write, the leader, files."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Final

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import RefusedError
from ledgermq.console.absent import missing
from ledgermq.console.accounts import Rules, load_rules, text_of_account
from ledgermq.console.actions.plan import Plan, SkippedError, Step
from ledgermq.console.actions.topics import check_new_name, writer_of, writers_of
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView
from ledgermq.console.looks import read_settings
from ledgermq.console.proofs import who_asks_accounts
from ledgermq.console.remote import Remote
from ledgermq.console.settings import shown_value
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.tally import Tally
from ledgermq.http.replies import RequestError
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    AddWritePermOfBrokerRequestHeader,
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)

_CLEAN: Final = {
    "expired_log": RequestCode.DELETE_EXPIRED_COMMITLOG,
    "expired_queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "unused_topics": RequestCode.CLEAN_UNUSED_TOPIC,
}
_TRANSFER_S: Final = 10.0
_PAUSE_S: Final = 0.25
_LEDGER_OK: Final = 200
# Begins a setting of LedgerMQ's: from which level on events of a namespace are logged.
_LOG_LEVEL: Final = "logLevel."
_LEVEL_ENDS: Final = "it ends by itself after a quarter of an hour, and with the next start"
_SETTING_ENDS: Final = "LedgerMQ's brokers forget it with their next start: write it in their files"


async def _rules_now(view: ClusterView, broker: str, access_key: str) -> str:
    tally = Tally()
    view.kept.drop("brokers")
    targets = await writers_of(view, [broker])
    rules: list[Rules] = await load_rules(view, tally, targets)
    return text_of_account(rules[0].accounts.get(access_key)) if rules else ""


async def _left_out(call: Call, wanted: shapes.PutAccount, addresses: list[str]) -> list[str]:
    """Returns which brokers are not told an account with its secret, and why, in sentences.

    Whoever may register a broker at the name servers would be told each one.
    """
    if wanted.secret_key is None:
        return []
    judges = call.terms.judges
    told = judges or await who_asks_accounts(call.cluster.remote, addresses)
    why = (
        "is none of those that the console trusts (--judge)"
        if judges
        else "asks for no account, or does not answer"
    )
    return [f"left out: {one} {why}" for one in addresses if one not in told]


async def plan_put_account(call: Call, wanted: shapes.PutAccount) -> Plan:
    """Creates or changes an account; its secret is in no text."""
    view = call.cluster
    check_new_name(wanted.access_key, "account")
    for field, rules in (("topic", wanted.topics), ("group", wanted.groups)):
        for rule in rules or ():
            # Of ten thousand: all others have their turn.
            await asyncio.sleep(0)
            check_new_name(rule, field)
    header = CreateAccessConfigRequestHeader(
        access_key=wanted.access_key,
        secret_key=wanted.secret_key,
        white_remote_address=wanted.addresses,
        admin=wanted.is_admin,
        default_topic_perm=wanted.default_topic,
        default_group_perm=wanted.default_group,
        topic_perms=None if wanted.topics is None else ",".join(wanted.topics),
        group_perms=None if wanted.groups is None else ",".join(wanted.groups),
    )
    after = [
        f"{name}: {value}"
        for name, value in (
            ("admin", "yes" if wanted.is_admin else "no"),
            ("secret", None if wanted.secret_key is None else "a new one"),
            ("addresses", wanted.addresses),
            ("default topic", wanted.default_topic),
            ("default group", wanted.default_group),
            ("topics", header.topic_perms),
            ("groups", header.group_perms),
        )
        if value is not None
    ]

    async def step(broker: str) -> Step:
        async def run() -> str:
            address = await writer_of(view, broker)
            left_out = await _left_out(call, wanted, [address])
            if left_out:
                raise SkippedError(left_out[0])
            await view.remote.call(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
            return ""

        return Step(
            target=broker,
            before=await _rules_now(view, broker, wanted.access_key),
            after="; ".join(after),
            run=run,
            look=partial(_rules_now, view, broker, wanted.access_key),
        )

    targets = await writers_of(view, [])
    steps = [await step(target.name) for target in targets]
    warnings = await _left_out(call, wanted, [target.address for target in targets])
    if wanted.access_key == call.account:
        warnings.append("this is your own account: your session may end")
    return Plan(
        summary=f"create or change account {wanted.access_key}",
        object=f"account {wanted.access_key}",
        steps=steps,
        warnings=warnings,
        # What is sent has the rules once more.
        held_bytes=4 * sum(map(len, after)),
    )


async def plan_delete_account(call: Call, wanted: shapes.DeleteAccount) -> Plan:
    """Deletes an account."""
    view, access_key = call.cluster, wanted.access_key
    if access_key == call.account:
        message = "this is your own account; another admin deletes it"
        raise RequestError(409, message, code="own_account", field="access_key")

    async def step(broker: str) -> Step:
        async def run() -> str:
            header = DeleteAccessConfigRequestHeader(access_key=access_key)
            address = await writer_of(view, broker)
            await view.remote.call(address, RequestCode.DELETE_ACL_CONFIG, header)
            return ""

        return Step(
            target=broker,
            before=await _rules_now(view, broker, access_key),
            run=run,
            look=partial(_rules_now, view, broker, access_key),
        )

    steps = [await step(target.name) for target in await writers_of(view, [])]
    steps = [one for one in steps if one.before]
    if not steps:
        raise missing("account", access_key)
    return Plan(summary=f"delete account {access_key}", object=f"account {access_key}", steps=steps)


async def plan_change_setting(call: Call, wanted: shapes.ChangeSetting) -> Plan:
    """Changes a setting of running brokers."""
    view = call.cluster
    everybody = await view.everybody()
    known = {target.address for target in everybody}
    for address in wanted.members:
        if address not in known:
            raise missing("member", address)
    for part in (wanted.key, wanted.value):
        if any(one in part for one in "\r\n\x00"):
            raise RequestError(400, "a setting is one line", field="value")
    is_level = wanted.key.startswith(_LOG_LEVEL)
    words = wanted.key.split(".") if is_level else [wanted.key]
    if not all(map(str.isidentifier, words)):
        raise RequestError(400, "this is no key", field="key", value=wanted.key)

    async def look(address: str) -> str:
        answer = await view.remote.call(address, RequestCode.GET_BROKER_CONFIG)
        return shown_value(wanted.key, read_settings(answer).get(wanted.key)) or ""

    async def step(address: str) -> Step:
        async def run() -> str:
            body = f"{wanted.key}={wanted.value}\n".encode("utf-8", "surrogatepass")
            await view.remote.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
            return ""

        return Step(
            target=address,
            before=await look(address),
            after=shown_value(wanted.key, wanted.value) or "",
            run=run,
            look=partial(look, address),
        )

    chosen = wanted.members or sorted(known)
    steps = [await step(address) for address in chosen]
    return Plan(
        summary=f"set {wanted.key} at {len(chosen)} members",
        object=f"setting {wanted.key}",
        steps=[one for one in steps if one.before != one.after],
        warnings=[_LEVEL_ENDS if is_level else _SETTING_ENDS],
    )


async def plan_set_writable(call: Call, wanted: shapes.SetWritable) -> Plan:
    """Takes the permission to write from a broker group, or gives it back."""
    view, broker = call.cluster, wanted.broker
    if broker not in await view.brokers():
        raise missing("broker", broker)

    def step(address: str) -> Step:
        async def run() -> str:
            if wanted.writable:
                code = RequestCode.ADD_WRITE_PERM_OF_BROKER
                await view.remote.call(
                    address, code, AddWritePermOfBrokerRequestHeader(broker_name=broker)
                )
            else:
                code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
                await view.remote.call(
                    address, code, WipeWritePermOfBrokerRequestHeader(broker_name=broker)
                )
            return ""

        after = "writable" if wanted.writable else "not writable"
        return Step(target=f"name server {address}", after=after, run=run)

    steps = [step(address) for address in view.remote.name_server_addresses]
    verb = "let producers write to" if wanted.writable else "keep producers from writing to"
    return Plan(summary=f"{verb} {broker}", object=f"broker {broker}", steps=steps)


async def plan_clean_files(call: Call, wanted: shapes.CleanFiles) -> Plan:
    """Has members delete what retention keeps no more."""
    view, broker = call.cluster, wanted.broker
    addresses = (await view.brokers()).get(broker)
    if not addresses:
        raise missing("broker", broker)

    def step(address: str) -> Step:
        async def run() -> str:
            await view.remote.call(address, _CLEAN[wanted.what])
            return ""

        return Step(target=address, after=wanted.what.replace("_", " "), run=run)

    steps = [step(address) for address in addresses.values()]
    return Plan(
        summary=f"have {broker} clean up: {wanted.what.replace('_', ' ')}",
        object=f"broker {broker}",
        steps=steps,
    )


async def plan_transfer_leader(call: Call, wanted: shapes.TransferLeader) -> Plan:
    """Hands the lead of a ledger group on, the way of DLedger's own tools."""
    sampler = call.sampler
    looks = await sampler.looker.look(call.now_ms)
    members = looks.groups.get(wanted.broker)
    if not members:
        raise missing("broker", wanted.broker)
    leader = next((look for look in members if look.leads), None)
    if leader is None or leader.figures is None or leader.figures.term is None:
        message = f"{wanted.broker} has no leader, or is no ledger group"
        raise RequestError(409, message, code="no_leader", field="broker", value=wanted.broker)
    chosen = next((look for look in members if look.name == wanted.member), None)
    if chosen is None or not chosen.helps:
        raise missing("member", wanted.member)
    settings = await sampler.looker.settings(wanted.broker, members)
    peers = {
        name: address
        for peer in settings.get("dLegerPeers", "").split(";")
        for name, dash, address in [peer.strip().partition("-")]
        if dash
    }
    if leader.name not in peers:
        message = "the account may not read the settings that say where the ledger's ports are"
        raise RequestError(403, message, field="broker", value=wanted.broker)
    _check_tools(wanted.broker, settings)
    fields = {
        "code": _LEDGER_OK,
        "group": settings.get("dLegerGroup", ""),
        "remoteId": leader.name,
        "transferId": leader.name,
        "transfereeId": wanted.member,
        "term": leader.figures.term,
    }

    async def look() -> str:
        return await _leader_now(call, wanted.broker)

    async def run() -> str:
        await _ask_ledger(peers[leader.name], fields)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _TRANSFER_S
        while loop.time() < end_s:
            if await _leader_now(call, wanted.broker) == wanted.member:
                return f"{wanted.member} leads"
            await asyncio.sleep(_PAUSE_S)
        raise RequestError(504, f"{wanted.member} did not take over in {_TRANSFER_S:g} s")

    step = Step(target=wanted.broker, before=leader.name, after=wanted.member, run=run, look=look)
    return Plan(
        summary=f"hand the lead of {wanted.broker} from {leader.name} to {wanted.member}",
        object=f"broker {wanted.broker}",
        steps=[step] if leader.name != wanted.member else [],
        warnings=["producers wait for a moment"],
    )


def _check_tools(broker: str, settings: Mapping[str, str]) -> None:
    """Refuses what the members of a closed group would answer to nobody who asks as a tool.

    Raises:
        RequestError: a secret is required, and no address is named that tools may ask from.
    """
    is_closed = (
        settings.get("dLegerGroupSecretFile", "")
        and settings.get("dLegerGroupSecretMode", "require") == "require"
    )
    if is_closed and settings.get("dLegerToolAddresses", "") in ("", "none"):
        message = (
            "this group is closed and serves no tools: name the address of this console in"
            " dLegerToolAddresses on each member, or restart the leader, which hands over first"
        )
        raise RequestError(
            409, message, code="closed", field="dLegerToolAddresses", value=broker,
            limit="an address or a network",
        )  # fmt: skip


async def _leader_now(call: Call, broker: str) -> str:
    call.cluster.kept.drop("brokers")
    call.cluster.kept.drop("looks")
    looks = await call.sampler.looker.look(call.cluster.now_ms())
    return next((look.name for look in looks.groups.get(broker, []) if look.leads), "")


async def _ask_ledger(address: str, fields: dict[str, object]) -> None:
    """Asks a member at the port of its ledger, where there is neither TLS nor signature.

    Raises:
        RefusedError: it does not hand over.
        UnreachableError: it does not answer; who leads afterwards is the answer.
    """
    remote = Remote(address, ClientConfig())
    try:
        code = RequestCode.DLEDGER_LEADERSHIP_TRANSFER
        answer = await remote.ask(address, code, body=json.dumps(fields).encode())
    finally:
        await remote.close()
    try:
        told = json.loads(answer.body)
    except ValueError:
        told = {}
    result = told.get("code", _LEDGER_OK) if isinstance(told, dict) else -1
    if result != _LEDGER_OK:
        remark = answer.remark or f"code {result} of the ledger"
        raise RefusedError(int(result), remark, broker=address)
