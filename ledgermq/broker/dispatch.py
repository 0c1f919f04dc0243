"""Dispatch: which processor answers which request code, and which response code each error has.

The two tables of the broker's protocol. `Dispatcher` is the receiver of all client connections: it
looks up the processor for each command of a chunk, sends what it returns, and turns what it raises
into an answer. One-way requests are never answered.
"""

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.broker.request_times import RequestTimes
from ledgermq.protocol.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state import errors

# What a processor returns: the answer, None when it comes later or never, or a Deferred of either.
Answer = RemotingCommand | None | Deferred[Any]
Processor = Callable[[CommandProtocol, RemotingCommand], Answer]
# Takes frames of a chunk from its front; returns how many.
TakeFrames = Callable[[CommandProtocol, list[bytes]], int]
# Whether a large request of a client that signed nothing yet may come, by its header.
AdmitsLarge = Callable[[CommandProtocol, RemotingCommand], bool]

# Address and port of a client as records hold them.
BornHost = tuple[bytes, int]

# From the special to the general: the first class that fits decides.
ERROR_CODES: Final[tuple[tuple[type[Exception], ResponseCode], ...]] = (
    (errors.SystemBusyError, ResponseCode.SYSTEM_BUSY),
    (errors.ServiceUnavailableError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (errors.CommitTimeoutError, ResponseCode.SYSTEM_ERROR),
    (errors.IllegalMessageError, ResponseCode.MESSAGE_ILLEGAL),
    (errors.NoPermissionError, ResponseCode.NO_PERMISSION),
    # As 4.9 answers; 5.x gives NO_PERMISSION.
    (errors.AccessDeniedError, ResponseCode.SYSTEM_ERROR),
    (errors.TopicNotFoundError, ResponseCode.TOPIC_NOT_EXIST),
    (errors.NotFoundError, ResponseCode.QUERY_NOT_FOUND),
    (errors.SubscriptionParseError, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    (errors.FilterMissingError, ResponseCode.FILTER_DATA_NOT_EXIST),
    (errors.SubscriptionMissingError, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    (errors.SubscriptionOutdatedError, ResponseCode.SUBSCRIPTION_NOT_LATEST),
    (errors.GroupNotFoundError, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    (errors.ConsumerOfflineError, ResponseCode.CONSUMER_NOT_ONLINE),
    (errors.InvalidParameterError, ResponseCode.INVALID_PARAMETER),
    (errors.BrokerError, ResponseCode.SYSTEM_ERROR),
    (ProtocolError, ResponseCode.SYSTEM_ERROR),
)
# Java clients read these fields of any answer to a send without looking whether there are fields.
SEND_CODES: Final = frozenset(
    (
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE_V2),
    )
)
# Unsent bytes of one connection above which nothing large is put behind them: its pulls are told to
# come again, and replies for it and questions to it are refused.
UNSENT_BYTES_MAX: Final = 8 << 20
_REMARK_CHARS_MAX: Final = 1024

_log = Logger()


def code_of(error: BaseException) -> ResponseCode:
    """Returns the response code of an error; one that is not ours is SYSTEM_ERROR."""
    for error_class, code in ERROR_CODES:
        if isinstance(error, error_class):
            return code
    return ResponseCode.SYSTEM_ERROR


class Dispatcher:
    """Receives the commands of all client connections."""

    def __init__(
        self,
        *,
        send_fields: Mapping[str, str],
        on_connection_lost: Callable[[CommandProtocol], None],
        times: RequestTimes | None = None,
    ) -> None:
        """Knows no processor yet.

        Args:
            send_fields: ext fields that every answer to a send has.
            on_connection_lost: told about each connection that is gone.
            times: gets the time of each request; None: one of its own.
        """
        self._processors: dict[int, Processor] = {}
        self._take_frames: TakeFrames | None = None
        self._admits_large: AdmitsLarge | None = None
        self._send_fields = dict(send_fields)
        self._on_connection_lost = on_connection_lost
        self.times = times or RequestTimes()
        self._unknown_codes: set[int] = set()
        # Requests that were refused, by the code of the answer.
        self.refused: dict[int, int] = {}

    def install(
        self,
        processors: Mapping[int, Processor],
        take_frames: TakeFrames | None = None,
        admits_large: AdmitsLarge | None = None,
    ) -> None:
        """Takes over the processors; called before the first connection.

        Args:
            processors: by request code.
            take_frames: takes frames from the front of a chunk before they become commands; None:
                all frames do.
            admits_large: asked where large requests need a signature; None: none of them come.
        """
        self._processors = dict(processors)
        self._take_frames = take_frames
        self._admits_large = admits_large

    def connection_made(self, connection: CommandProtocol) -> None:
        """Notes the client's address in the form that records need."""
        host, _, port = connection.peer.rpartition(":")
        connection.context = born_host(host, int(port))
        connection.take_frames = self._take_frames
        connection.admits_large = self._admits_large

    def connection_lost(self, connection: CommandProtocol, reason: str) -> None:
        """Tells the broker that a client is gone."""
        self._on_connection_lost(connection)

    def commands_received(
        self, connection: CommandProtocol, commands: list[RemotingCommand]
    ) -> int:
        """Answers requests of one chunk in their order, as far as they can be answered now.

        A chunk ends with its connection: one that is closed because it does not read its answers
        gets no more of them made.

        Returns: how many the connection's share of this turn was enough for, one at least.
        """
        processors, times = self._processors, self.times
        # Of one code, one after the other, as far as they are answered at once.
        run_code, run_count, begun_s = -1, 0, times.seconds()
        for taken, command in enumerate(commands):
            if taken and not connection.goes_on():
                times.took(run_code, run_count, begun_s, connection)
                return taken
            code = command.code
            processor = processors.get(code)
            if code != run_code:
                begun_s = times.took(run_code, run_count, begun_s, connection)
                run_code, run_count = code, 0
            if processor is None:
                self._answer_unknown(connection, command)
                continue
            run_count += 1
            try:
                answer = processor(connection, command)
            except Exception as error:
                self._answer_error(connection, command, error)
                continue
            if answer is None:
                continue
            if isinstance(answer, RemotingCommand):
                if not command.is_one_way:
                    self._send(connection, command, answer)
            else:
                run_count -= 1
                began_s, begun_s = begun_s, times.seconds()
                answer.addCallbacks(
                    self._answer_later,
                    self._fail_later,
                    callbackArgs=(connection, command),
                    errbackArgs=(connection, command),
                )
                answer.addCallback(self._note_answer, connection, code, began_s, begun_s)
        times.took(run_code, run_count, begun_s, connection)
        return len(commands)

    def refuse(
        self, connection: Any, opaque: int, serialize_type: int, error: errors.BrokerError
    ) -> None:
        """Answers a send whose command is no longer at hand with an error."""
        code = int(code_of(error))
        self.refused[code] = self.refused.get(code, 0) + 1
        connection.send(
            RemotingCommand(
                code=code,
                opaque=opaque,
                flag=RESPONSE_FLAG,
                remark=_shortened(str(error)),
                ext_fields=dict(self._send_fields),
                serialize_type=serialize_type,
            )
        )

    def _answer_later(
        self, answer: RemotingCommand | None, connection: CommandProtocol, command: RemotingCommand
    ) -> None:
        if answer is not None and not command.is_one_way:
            self._send(connection, command, answer)

    def _note_answer(
        self, _: object, connection: CommandProtocol, code: int, begun_s: float, worked_s: float
    ) -> None:
        self.times.answered(code, begun_s, worked_s, connection)

    def _fail_later(
        self, failure: Failure, connection: CommandProtocol, command: RemotingCommand
    ) -> None:
        error = failure.value
        assert error is not None
        self._answer_error(connection, command, error)

    def _answer_unknown(self, connection: CommandProtocol, command: RemotingCommand) -> None:
        answer = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        self.refused[answer] = self.refused.get(answer, 0) + 1
        if command.code not in self._unknown_codes and len(self._unknown_codes) < 1000:
            self._unknown_codes.add(command.code)
            _log.warn(
                "{peer} asks for request code {code}, which is not supported",
                peer=connection.peer,
                code=command.code,
            )
        if not command.is_one_way:
            remark = f" request type {command.code} not supported"
            connection.send(command.response(answer, remark))

    def _answer_error(
        self, connection: CommandProtocol, command: RemotingCommand, error: BaseException
    ) -> None:
        if isinstance(error, errors.BrokerError | ProtocolError):
            remark = str(error)
        else:
            _log.failure(
                "request code {code} of {peer} failed",
                Failure(error),
                code=command.code,
                peer=connection.peer,
            )
            remark = f"{type(error).__name__}: {error}"
        answer = code_of(error)
        self.refused[answer] = self.refused.get(answer, 0) + 1
        if not command.is_one_way:
            self._send(connection, command, command.response(answer, _shortened(remark)))

    def _send(
        self, connection: CommandProtocol, command: RemotingCommand, answer: RemotingCommand
    ) -> None:
        if command.code in SEND_CODES:
            answer.ext_fields = {**self._send_fields, **(answer.ext_fields or {})}
        try:
            connection.send(answer)
        except ProtocolError as error:
            # A consumer's words that are handed on may not fit into the header of who asked.
            remark = _shortened(f"the answer cannot be sent: {error}")
            connection.send(command.response(ResponseCode.SYSTEM_ERROR, remark))


def born_host(host: str, port: int) -> BornHost:
    """Returns an address as records hold it: 4 bytes for IPv4, also when it came by an IPv6
    socket.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return (b"\x7f\x00\x00\x01", port)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return (address.packed, port)


def _shortened(remark: str) -> str:
    return remark if len(remark) <= _REMARK_CHARS_MAX else remark[: _REMARK_CHARS_MAX - 3] + "..."
