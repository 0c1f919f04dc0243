"""Which failures of a send are tried again, when, and after a look at the route."""

import pytest

from ledgermq.client.retry import (
    BACK_OFF_MS_MAX,
    back_off_ms,
    is_access_refused,
    is_retriable,
    retry_after_code,
    retry_after_loss,
    try_s,
    try_s_min,
)
from ledgermq.protocol.codes import ResponseCode

PLENTY_MS = 10_000.0


@pytest.mark.parametrize(
    ("code", "needs_route"),
    [
        (ResponseCode.SERVICE_NOT_AVAILABLE, True),
        (ResponseCode.NO_PERMISSION, True),
        (ResponseCode.TOPIC_NOT_EXIST, True),
        (ResponseCode.NOT_LEADER_FOR_QUEUE, True),
        (ResponseCode.GO_AWAY, True),
        (ResponseCode.SYSTEM_BUSY, False),
        (ResponseCode.SYSTEM_ERROR, True),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, False),
    ],
)
def test_code_that_may_pass_is_tried_again(code: ResponseCode, needs_route: bool) -> None:
    retry = retry_after_code(code, "why", 1, PLENTY_MS, 1.0)
    assert retry is not None
    assert retry.needs_route is needs_route
    assert is_retriable(code, "why")


@pytest.mark.parametrize("code", [3, 13, 26, 999, -1])
def test_code_that_stays_is_not_tried_again(code: int) -> None:
    assert retry_after_code(code, None, 1, PLENTY_MS, 1.0) is None
    assert not is_retriable(code, None)


@pytest.mark.parametrize(
    ("code", "tries"), [(ResponseCode.SYSTEM_ERROR, 3), (ResponseCode.TOPIC_NOT_EXIST, 10)]
)
def test_code_that_is_likely_to_stay_is_tried_a_few_times(code: ResponseCode, tries: int) -> None:
    assert retry_after_code(code, None, tries - 1, PLENTY_MS, 1.0) is not None
    assert retry_after_code(code, None, tries, PLENTY_MS, 1.0) is None


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_ERROR, "No acl config for nobody"),
        (ResponseCode.SYSTEM_ERROR, "No permission for topic:pay: accessKey=me needs PUB"),
        (ResponseCode.NO_PERMISSION, "AclException: No default permission for pay"),
    ],
)
def test_refusal_of_access_control_is_final(code: ResponseCode, remark: str) -> None:
    assert is_access_refused(code, remark)
    assert not is_retriable(code, remark)
    assert retry_after_code(code, remark, 1, PLENTY_MS, 1.0) is None


def test_missing_leader_is_waited_for_as_long_as_there_is_time() -> None:
    code = ResponseCode.SERVICE_NOT_AVAILABLE
    assert retry_after_code(code, None, 500, PLENTY_MS, 1.0) is not None
    assert retry_after_code(code, None, 500, 100, 1.0) is None


def test_lost_answer_is_tried_again_with_a_new_route_while_there_is_time() -> None:
    retry = retry_after_loss(1, PLENTY_MS, 1.0)
    assert retry is not None
    assert retry.needs_route
    assert retry_after_loss(1, 1.0, 1.0) is None


def test_back_off_doubles_up_to_its_limit_and_is_jittered() -> None:
    assert [back_off_ms(tries, 1.0) for tries in range(1, 8)] == [20, 40, 80, 160, 320, 500, 500]
    assert back_off_ms(1, 0.0) == 10
    assert back_off_ms(10_000, 1.0) == BACK_OFF_MS_MAX


@pytest.mark.parametrize(
    ("timeouts", "left_s", "expected"),
    [(0, 15.0, 3.0), (1, 12.0, 6.0), (2, 100.0, 12.0), (2, 5.0, 5.0), (1000, 1e6, 3072.0)],
)
def test_each_try_without_an_answer_waits_twice_as_long(
    timeouts: int, left_s: float, expected: float
) -> None:
    assert try_s(3.0, timeouts, left_s) == expected


@pytest.mark.parametrize(("timeout_s", "expected"), [(15.0, 0.5), (0.4, 0.1), (0.01, 0.0025)])
def test_a_try_needs_half_a_second_or_a_quarter_of_all_there_is(
    timeout_s: float, expected: float
) -> None:
    assert try_s_min(timeout_s) == expected
