"""Is a failure worth another try, when, and does it need a new route: pure functions over values.

A ledger group has one broker name: while it elects, no other broker can take a message, so that a
producer has to wait rather than go elsewhere. What may pass with a new leader is therefore tried
again until the time for the message is up; what is likely to stay is tried a few times. A refusal
of access control stays: it has the code of any failure, and only its words tell.

Source of the codes: DefaultMQProducer's retryResponseCodes of 4.9.3 (1, 14, 16, 17, 204, 205) and
5.x (2, 1500). LedgerMQ adds 501 and the three codes of a message that is stored but not yet safe.
"""

import re
from dataclasses import dataclass
from typing import Final

from ledgermq.client.errors import ClientError
from ledgermq.protocol.codes import ResponseCode

# The broker that was asked is not, or no longer, the one to ask.
ROUTE_CODES: Final = frozenset(
    {
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.TOPIC_NOT_EXIST),
        int(ResponseCode.NOT_LEADER_FOR_QUEUE),
        int(ResponseCode.GO_AWAY),
    }
)
# Another broker may lead now.
_LEADER_CODES: Final = ROUTE_CODES - {
    int(ResponseCode.NO_PERMISSION),
    int(ResponseCode.TOPIC_NOT_EXIST),
}
# Stored, but not yet as safely as the broker is set up to.
UNSAFE_STORE_CODES: Final = frozenset(
    {
        int(ResponseCode.FLUSH_DISK_TIMEOUT),
        int(ResponseCode.SLAVE_NOT_AVAILABLE),
        int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
    }
)
# Retriable code -> tries of one message that may end so; None: as many as there is time for.
_TRIES_MAX: Final[dict[int, int | None]] = {
    ResponseCode.SYSTEM_ERROR: 3,
    ResponseCode.SYSTEM_BUSY: None,
    ResponseCode.FLUSH_DISK_TIMEOUT: 3,
    ResponseCode.SLAVE_NOT_AVAILABLE: 3,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: 3,
    ResponseCode.SERVICE_NOT_AVAILABLE: None,
    ResponseCode.NO_PERMISSION: 10,
    ResponseCode.TOPIC_NOT_EXIST: 10,
    ResponseCode.NO_BUYER_ID: 3,
    ResponseCode.NOT_IN_CURRENT_UNIT: 3,
    ResponseCode.NOT_LEADER_FOR_QUEUE: None,
    ResponseCode.GO_AWAY: None,
}

# Access control of 4.9 refuses with SYSTEM_ERROR, of 5.x with NO_PERMISSION: Java names its
# exception, ours the account.
_ACCESS_REMARK: Final = re.compile(r"AclException|accessKey|^No acl config for ")

# A broker without filters by properties, in Java's words and ours; a name that cannot be.
_LASTING_REMARK: Final = re.compile(
    r"does not support consumer to filter|enablePropertyFilter|contains illegal characters"
)

# Less time than this is too little for a try, where a message has that much at all: its answer
# would come too late, and the message would be stored without anybody knowing.
TRY_S_MIN: Final = 0.5

BACK_OFF_FIRST_MS: Final = 20
BACK_OFF_MS_MAX: Final = 500


@dataclass(slots=True, frozen=True, kw_only=True)
class Retry:
    """Try again: after how long, and whether the route has to be asked for before."""

    delay_ms: int
    needs_route: bool


def is_access_refused(code: int, remark: str | None) -> bool:
    """Tells whether an answer says that the account is unknown, not proven or may not."""
    return (
        code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)
        and _ACCESS_REMARK.search(remark or "") is not None
    )


def is_passing(code: int, remark: str | None, codes: frozenset[int]) -> bool:
    """Tells whether a refusal may be one for a moment only.

    Args:
        code: its response code.
        remark: its explanation; a code that mostly passes may also say what stays.
        codes: those that mostly pass.
    """
    if code not in codes or is_access_refused(code, remark):
        return False
    return _LASTING_REMARK.search(remark or "") is None


def is_retriable(code: int, remark: str | None) -> bool:
    """Tells whether a send that was answered with `code` may succeed later."""
    return code in _TRIES_MAX and not is_access_refused(code, remark)


def is_refusal(error: ClientError) -> bool:
    """Tells whether the right broker has refused: another one, or a new leader, heals nothing."""
    return error.code is not None and error.code not in _LEADER_CODES


def retry_after_code(
    code: int, remark: str | None, attempts: int, left_ms: float, jitter: float
) -> Retry | None:
    """Decides about a send that a broker answered with an error.

    Args:
        code: its response code.
        remark: its explanation.
        attempts: tries so far, the failed one included.
        left_ms: time in which another try may begin.
        jitter: a random number of 0.0 to 1.0.

    Returns:
        None when the send has failed.
    """
    if not is_retriable(code, remark):
        return None
    tries_max = _TRIES_MAX[code]
    if tries_max is not None and attempts >= tries_max:
        return None
    # A queue that the topic no longer has is refused as any failure is.
    needs_route = code in ROUTE_CODES or code == ResponseCode.SYSTEM_ERROR
    return _within(left_ms, attempts, jitter, needs_route=needs_route)


def retry_after_loss(attempts: int, left_ms: float, jitter: float) -> Retry | None:
    """Decides about a send that got no answer: no route, no connection, or not in time.

    Args:
        attempts: tries so far, at least 1.
        left_ms: time in which another try may begin.
        jitter: a random number of 0.0 to 1.0.

    Returns:
        None when there is no time left.
    """
    return _within(left_ms, attempts, jitter, needs_route=True)


def try_s_min(timeout_s: float) -> float:
    """Returns the time that a message must have left for a try to begin.

    Args:
        timeout_s: all the time that a message has.
    """
    return min(TRY_S_MIN, timeout_s / 4)


def try_s(attempt_timeout_s: float, timeouts: int, left_s: float) -> float:
    """Returns how long a try waits for its answer: twice as long after each that got none in time.

    A broker that is slow gets copies of a message ever more rarely.

    Args:
        attempt_timeout_s: for the first try.
        timeouts: tries so far whose time was over.
        left_s: time that is left for the message.
    """
    return max(min(attempt_timeout_s * (1 << min(timeouts, 10)), left_s), 0.001)


def back_off_ms(attempts: int, jitter: float) -> int:
    """Returns how long to wait before the next try: 20 ms doubled each time up to 500 ms.

    Args:
        attempts: tries so far, at least 1.
        jitter: a random number of 0.0 to 1.0, so that clients do not come back all at once.
    """
    full = min(BACK_OFF_FIRST_MS * 2 ** min(attempts - 1, 10), BACK_OFF_MS_MAX)
    return int(full * (0.5 + jitter / 2))


def _within(left_ms: float, attempts: int, jitter: float, *, needs_route: bool) -> Retry | None:
    delay_ms = back_off_ms(attempts, jitter)
    if delay_ms >= left_ms:
        return None
    return Retry(delay_ms=delay_ms, needs_route=needs_route)
