"""END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323), and CHECK_TRANSACTION_STATE (39), which
the broker asks.

Source: `EndTransactionProcessor.java`, `AbstractTransactionalMessageCheckListener.java`.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.committed_answers import answer_when_committed
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import Answer
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.records.delayed_messages import waiting_message
from ledgermq.broker.records.half_messages import (
    HalfMessage,
    account_mark,
    committed_message,
    resumed,
)
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.waits.transactions import Transactions
from ledgermq.commitlog import AppendMessage, AppendResult
from ledgermq.measures.histogram import Histogram
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from ledgermq.protocol.message_id import encode_offset_id
from ledgermq.protocol.properties import (
    DELAY_TIME_LEVEL,
    PRODUCER_GROUP,
    SENDER_ACCOUNT,
    UNIQUE_KEY,
    WAIT_STORE_MSG_OK,
    decode_properties,
    format_properties,
)
from ledgermq.protocol.record import encode_record
from ledgermq.protocol.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import names
from ledgermq.state.errors import AccessDeniedError, InvalidRequestError

# As RocketMQ 5 has them for its metric.
_SPAN_BOUNDS_S: Final = (5.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0)

_log = Logger()

# Whether clients of an account may be asked about a half message.
MayAsk = Callable[[HalfMessage, str], bool]


class TransactionProcessor:
    """Ends transactions.

    Attributes:
        committed: how many were committed here, by topic.
        rolled_back: how many were rolled back.
        spans: seconds from the birth of a half message to its end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        leadership: Leadership,
        transactions: Transactions,
        proposals: Proposals,
        records: VisibleRecords,
        now_ms: Callable[[], int],
    ) -> None:
        """Binds the parts; `now_ms` is the wall clock."""
        self._config = config
        self._now_ms = now_ms
        self._leadership = leadership
        self._transactions = transactions
        self._proposals = proposals
        self._records = records
        self.committed: dict[str, int] = {}
        self.rolled_back: dict[str, int] = {}
        self.spans = Histogram(_SPAN_BOUNDS_S)

    def end(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """END_TRANSACTION (37): commits or rolls back; what is still unknown is not answered."""
        if not self._leadership.is_serving:
            remark = str(self._leadership.refusal())
            return command.response(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        self._proposals.check_room()
        header = command.header(EndTransactionRequestHeader)
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._half_at(header.commit_log_offset)
        if connection.sight is not None and not self._may_end(half, connection.account):
            raise AccessDeniedError(
                f"the half message at {header.commit_log_offset} is another account's than"
                f" accessKey={connection.account}"
            )
        if half.properties.get(PRODUCER_GROUP) != header.producer_group:
            raise InvalidRequestError(
                f"The producer group wrong: {header.producer_group} is not that of the half message"
                f" at {header.commit_log_offset}"
            )
        if half.record.queue_offset != header.tran_state_table_offset:
            raise InvalidRequestError(
                f"The transaction state table offset wrong: {header.tran_state_table_offset} is not"
                f" that of the half message at {header.commit_log_offset}"
            )
        message = None
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            message = committed_message(half)
            level = self._config.delay_levels.level_of(half.properties.get(DELAY_TIME_LEVEL))
            if level:
                message = waiting_message(message, level)
        counts = self.rolled_back if message is None else self.committed
        answer = answer_when_committed(
            command, lambda done: self._transactions.end(half, message, done)
        )
        return answer.addCallback(self._count, half, counts)

    @staticmethod
    def _may_end(half: HalfMessage, account: str | None) -> bool:
        """Tells whether an account that is no admin sent a half message, or nobody knows who."""
        mark = half.account_mark
        return mark is None or (account is not None and mark == account_mark(account))

    def _count(self, answer: Any, half: HalfMessage, counts: dict[str, int]) -> Any:
        counts[half.target.topic] = counts.get(half.target.topic, 0) + 1
        took_ms = max(self._now_ms() - half.record.born_timestamp, 0)
        self.spans.observe(took_ms / 1000)
        return answer

    def _half_at(self, physical_offset: int) -> HalfMessage:
        half = self._records.find_half(physical_offset)
        if half is None:
            raise InvalidRequestError(
                f"Find prepared transaction message failed: no half message at {physical_offset}"
            )
        return half

    def resume(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """RESUME_CHECK_HALF_MESSAGE (323): a message that was put aside is asked about again."""
        if not self._leadership.takes_messages:
            raise self._leadership.refusal()
        self._proposals.check_room()
        header = command.header(ResumeCheckHalfMessageRequestHeader)
        record = self._records.find_set_aside(header.msg_id or "")
        message = None if record is None else resumed(record)
        if message is None:
            raise InvalidRequestError(
                f"no message in {names.HALF_EXPIRED_TOPIC} has the id {header.msg_id}"
            )
        messages = [message]
        return answer_when_committed(
            command, lambda done: self._proposals.add_own(messages, lambda _, error: done(error))
        )


class ProducerQuestions:
    """Asks producers what became of their transactions."""

    def __init__(self, clients: ClientTable, may_ask: MayAsk) -> None:
        """Binds the table of live producers, and who of them may see a half message."""
        self._clients = clients
        self._may_ask = may_ask

    def ask(self, half: HalfMessage, copy: AppendMessage, result: AppendResult) -> None:
        """Sends CHECK_TRANSACTION_STATE (39) to one live producer of the group.

        Args:
            half: as it was.
            copy: as it is stored now.
            result: where; the producer ends the transaction by this place.
        """
        group = half.properties.get(PRODUCER_GROUP, "")
        connection = self._clients.next_producer(
            group, lambda account: account is None or self._may_ask(half, account)
        )
        if connection is None:
            _log.info(
                "no producer of group {group} is there to be asked that may see the half message",
                group=group,
            )
            return
        assert isinstance(connection, CommandProtocol)
        key = half.properties.get(UNIQUE_KEY)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=result.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=encode_offset_id(*copy.store_host, result.physical_offset),
        )
        # As upstream has it: the copy that is asked about does not wait for disks.
        properties = decode_properties(copy.properties) | {WAIT_STORE_MSG_OK: "false"}
        properties.pop(SENDER_ACCOUNT, None)
        body = encode_record(
            half.target.topic.encode(),
            half.target.queue_id,
            copy.flag,
            result.queue_offset,
            result.physical_offset,
            copy.sys_flag,
            copy.born_timestamp,
            copy.born_host,
            result.store_timestamp,
            copy.store_host,
            copy.reconsume_times,
            0,
            copy.body,
            format_properties(properties).encode(),
        )
        connection.send_one_way(
            RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, body, one_way=True)
        )
