"""SEND_REPLY_MESSAGE (324, 325): the answer to a message, handed to the client that waits for it.

The consumer of a request sends its reply to any broker; the message names the client that asked,
which has to be connected here as a producer. It is asked to take the reply (326), and what it says
is the outcome of the send. With storeReplyMessageEnable the reply is stored, too: its place is then
in the answer. Source: `ReplyMessageProcessor.java`.
"""

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clients.open_questions import OpenQuestions
from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.dispatch import UNSENT_BYTES_MAX, Answer, Processor
from ledgermq.broker.records.namings import check_properties
from ledgermq.protocol.codes import ONE_WAY_FLAG, RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    decode_send_header,
)
from ledgermq.protocol.properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    format_properties,
    parse_properties,
)
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import (
    BrokerError,
    InvalidRequestError,
    ServiceUnavailableError,
)

_CLIENT_ANSWER_MS: Final = 10_000

_log = Logger()


class ReplyProcessor:
    """Hands replies over."""

    def __init__(
        self,
        config: BrokerConfig,
        clients: ClientTable,
        questions: OpenQuestions,
        store: Processor,
        *,
        store_address: str,
        now_ms: Callable[[], int],
    ) -> None:
        """Binds the parts.

        Args:
            config: switches.
            clients: where the one that asked is found.
            questions: asks it.
            store: takes a reply as it takes any message.
            store_address: "host:port" of this broker.
            now_ms: wall clock.
        """
        self._config = config
        self._clients = clients
        self._questions = questions
        self._store = store
        self._store_address = store_address
        self._now_ms = now_ms

    def reply(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """SEND_REPLY_MESSAGE (324, 325).

        Raises:
            BrokerError: the one that asked is not here, reads or answers too slowly, too many
                replies are under way, or sends are not taken yet.
            IllegalMessageError: it has more than a message may have.
            RemoteProtocolError: the header cannot be read.
        """
        header = decode_send_header(command)
        if self._now_ms() < self._config.accept_sends_from_ms:
            raise ServiceUnavailableError(
                f"broker unable to service, until {self._config.accept_sends_from_ms} ms since 1970"
                " (key startAcceptSendRequestTimeStamp)"
            )
        # It is handed over before anybody stores it.
        check_properties(header.properties or "")
        properties = parse_properties(header.properties or "")
        client_id = properties.get(REPLY_TO_CLIENT)
        try:
            pushed = self._push(connection, command, header, properties, client_id)
        except InvalidRequestError:
            self._keep(connection, command)
            raise

        def told(answer: RemotingCommand) -> RemotingCommand | None:
            if answer.code == ResponseCode.SUCCESS:
                return self._succeeded(connection, command, header.queue_id)
            self._keep(connection, command)
            raise InvalidRequestError(f"push reply message to {client_id} fail: {answer.remark}")

        def failed(failure: object) -> RemotingCommand:
            self._keep(connection, command)
            reason = getattr(failure, "value", failure)
            raise InvalidRequestError(f"push reply message to {client_id} fail: {reason}")

        return pushed.addCallbacks(told, failed)

    def _push(
        self,
        connection: CommandProtocol,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        properties: dict[str, str],
        client_id: str | None,
    ) -> Deferred[RemotingCommand]:
        if client_id is None:
            raise InvalidRequestError(
                f"{REPLY_TO_CLIENT} is null, can not reply message: the property names who asked"
            )
        asking = self._clients.find_producer(client_id)
        if not isinstance(asking, CommandProtocol):
            raise InvalidRequestError(
                f"push reply message to {client_id} fail, channel of <{client_id}> not found."
            )
        if not asking.has_room(UNSENT_BYTES_MAX):
            # Anybody may reply to it: nobody ends its connection by more than it reads.
            raise InvalidRequestError(
                f"push reply message to {client_id} fail, {asking.unsent_bytes} bytes for it are"
                f" unsent, allowed are {UNSENT_BYTES_MAX}: it reads too slowly"
            )
        question = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=format_properties({**properties, PUSH_REPLY_TIME: str(self._now_ms())}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=f"/{connection.peer}",
            store_host=f"/{self._store_address}",
            store_timestamp=self._now_ms(),
        )
        request = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, question, command.body
        )
        return self._questions.ask(connection, command, asking, request, _CLIENT_ANSWER_MS)

    def _succeeded(
        self, connection: CommandProtocol, command: RemotingCommand, queue_id: int
    ) -> RemotingCommand | None:
        """The reply was taken: its place, when it can be stored, is told by the store."""
        if self._config.stores_replies:
            try:
                self._store(connection, command)
            except (BrokerError, ProtocolError) as error:
                _log.warn("a reply was handed over, but is not stored: {error}", error=error)
            else:
                return None
        fields = SendMessageResponseHeader(msg_id="0", queue_id=max(queue_id, 0), queue_offset=0)
        return command.response(ResponseCode.SUCCESS, header=fields)

    def _keep(self, connection: CommandProtocol, command: RemotingCommand) -> None:
        """Stores a reply that nobody took; nobody hears of that."""
        if not self._config.stores_replies:
            return
        command = RemotingCommand(
            code=command.code,
            flag=command.flag | ONE_WAY_FLAG,
            ext_fields=command.ext_fields,
            body=command.body,
            read_fields=command.read_fields,
        )
        try:
            self._store(connection, command)
        except (BrokerError, ProtocolError) as error:
            _log.warn("a reply is not stored: {error}", error=error)
