"""Headers of transactions: codes 37, 39, 323.

Source: EndTransactionRequestHeader.java, CheckTransactionStateRequestHeader.java.
"""

from ledgermq.protocol.headers.header import Header, Int32, Int64


class EndTransactionRequestHeader(Header, frozen=True, kw_only=True):
    """EndTransactionRequestHeader (37, one-way)."""

    producer_group: str
    # Queue offset of the half message.
    tran_state_table_offset: Int64
    # Physical offset of the half message.
    commit_log_offset: Int64
    # As in the system flag of a message: 8 commit, 12 roll back, 0 unknown.
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    # 5.x
    topic: str | None = None


class CheckTransactionStateRequestHeader(Header, frozen=True, kw_only=True):
    """CheckTransactionStateRequestHeader (39, broker to producer, one-way)."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header, frozen=True, kw_only=True):
    """ResumeCheckHalfMessageRequestHeader (323)."""

    # Offset message id.
    msg_id: str | None = None
