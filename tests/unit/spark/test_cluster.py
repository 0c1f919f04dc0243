"""Which answers are worth another try."""

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.spark.cluster import may_pass

CODES = {code for code in ResponseCode if code is not ResponseCode.SYSTEM_ERROR}
PASSING = {
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NOT_LEADER_FOR_QUEUE,
    ResponseCode.GO_AWAY,
    ResponseCode.FLOW_CONTROL,
}


def answer(code: ResponseCode, remark: str | None) -> RemotingCommand:
    """An answer that is an error."""
    return RemotingCommand.request(RequestCode.PULL_MESSAGE).response(code, remark)


def test_what_a_busy_or_new_leader_says_may_pass_and_nothing_else() -> None:
    assert {code for code in CODES if may_pass(answer(code, "why"))} == PASSING


@pytest.mark.parametrize(
    "remark",
    [
        "No accessKey is configured (access control is on)",
        "No acl config for nobody",
        "Check signature failed for accessKey=me",
        "Need admin permission for request code=17, but accessKey=me is not",
        "No default permission for topic:Orders: accessKey=me needs SUB",
        "No permission for group:billing: accessKey=me needs SUB",
        "org.apache.rocketmq.acl.common.AclException: No acl config for nobody, "
        "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate",
    ],
)
def test_a_refusal_of_access_control_does_not_pass(remark: str) -> None:
    assert not may_pass(answer(ResponseCode.SYSTEM_ERROR, remark))


@pytest.mark.parametrize("remark", [None, "", "TimeoutError: the entry is not committed"])
def test_another_failure_of_a_broker_may_pass(remark: str | None) -> None:
    assert may_pass(answer(ResponseCode.SYSTEM_ERROR, remark))
