"""Accounts and their rules, and what these say to a question."""

from collections.abc import Mapping

from ledgermq.console.absent import missing
from ledgermq.console.accounts import AccountRules, Rules, load_rules
from ledgermq.console.call import Call
from ledgermq.console.shapes import access as shapes
from ledgermq.console.tally import Tally
from ledgermq.http.replies import RequestError
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import GetBrokerAclConfigResponseHeader


async def get_access(call: Call) -> shapes.Access:
    """Who may what."""
    view, tally = call.cluster, Tally()
    targets = await view.leaders(tally)
    rules = await load_rules(view, tally, targets)
    versions = await view.each(
        Tally(),
        targets if rules else [],
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        read=lambda answer: answer.header(GetBrokerAclConfigResponseHeader).version,
    )
    reasons = sorted({one.reason for one in tally.answers().silent})
    return shapes.Access(
        enabled=bool(rules),
        reason="" if rules else "; ".join(reasons),
        accounts=[_account(name, rules) for name in sorted({n for r in rules for n in r.accounts})],
        open_addresses=sorted({address for one in rules for address in one.open_addresses}),
        versions={target.name: version for target, version in versions},
        answers=tally.answers(),
    )


def _account(name: str, rules: list[Rules]) -> shapes.Account:
    told = [one.accounts.get(name) for one in rules]
    first = next(one for one in told if one is not None)
    return shapes.Account(
        access_key=name,
        is_admin=first.is_admin,
        addresses=first.addresses,
        default_topic=first.default_topic,
        default_group=first.default_group,
        topics=list(first.topics),
        groups=list(first.groups),
        differs=any(one != first for one in told),
    )


async def ask_may(call: Call) -> shapes.MayAnswer:
    """May an account do something, as the rules stand?"""
    assert isinstance(call.body, shapes.MayQuestion)
    view, tally = call.cluster, Tally()
    rules = await load_rules(view, tally, await view.leaders(tally))
    if not rules:
        reasons = "; ".join(one.reason for one in tally.answers().silent)
        message = f"no broker tells its rules: {reasons}"
        raise RequestError(409, message, code="no_rules")
    found: Mapping[str, AccountRules] = rules[0].accounts
    one = found.get(call.body.access_key)
    if one is None:
        raise missing("access_key", call.body.access_key)
    return judge(one, call.body)


def judge(one: AccountRules, question: shapes.MayQuestion) -> shapes.MayAnswer:
    """Returns what the rules of an account say; the same that brokers judge by."""
    if one.is_admin:
        return shapes.MayAnswer(allowed=True, because="it is an admin")
    is_topic = question.kind == "topic"
    own = one.topics if is_topic else one.groups
    default = one.default_topic if is_topic else one.default_group
    for rule in own:
        name, _, told = rule.rpartition("=")
        if name == question.name:
            because = f"the rule {rule}"
            return shapes.MayAnswer(allowed=_allows(told, question.what), because=because)
    because = f"no rule names it, and the default is {default}"
    return shapes.MayAnswer(allowed=_allows(default, question.what), because=because)


def _allows(told: str, what: str) -> bool:
    words = {word.strip() for word in told.split("|")}
    return what in words or "ANY" in words
