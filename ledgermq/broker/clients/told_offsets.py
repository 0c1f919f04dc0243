"""What consumers tell of their offsets (221, for 223), taken over as text where it may be.

A consumer of a thousand queues tells 100 KB in fastjson's dialect: the keys are objects. To read
that piece by piece takes a second for some megabytes, in which nobody else is served, and who
answers is as foreign as who asks. What stock clients write is recognised by one look and handed on
as it is; what is written in another way is read while it is short, and left out when it is not.
Source: `GetConsumerStatusBody.java`. Pure.
"""

import re
from typing import Final

from ledgermq.protocol import lenient_json
from ledgermq.protocol.bodies import read_queue_map
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError

# Of one answer; of one in another form than that of stock clients; and of all together.
TOLD_BYTES_MAX: Final = 256 << 10
OTHER_FORM_BYTES_MAX: Final = 4096
ALL_BYTES_MAX: Final = 4 << 20

# No name of a topic or broker has a quote, a backslash or anything else that would mean something.
_NAME: Final = rb'"[!#-\[\]-~]{0,255}"'
_NUMBER: Final = rb"-?[0-9]{1,19}"
_ENTRY: Final = rb'\{"brokerName":%b,"queueId":-?[0-9]{1,10},"topic":%b\}:%b' % (
    _NAME,
    _NAME,
    _NUMBER,
)
_USUAL: Final = re.compile(
    rb'\{(?:"consumerTable":\{\},)?"messageQueueTable":(\{(?:%b(?:,%b)*)?\})\}' % (_ENTRY, _ENTRY)
)


def told_table(body: bytes) -> bytes:
    """Returns the offsets by queue that an answer tells, as JSON in fastjson's dialect.

    Raises:
        RemoteProtocolError: it is no such answer, or too long.
    """
    size = len(body)
    if size > TOLD_BYTES_MAX:
        raise RemoteProtocolError("bytes of a consumer's offsets", size, TOLD_BYTES_MAX)
    usual = _USUAL.fullmatch(body)
    if usual is not None:
        return usual[1]
    if size > OTHER_FORM_BYTES_MAX:
        raise RemoteProtocolError("bytes of a consumer's offsets", size, OTHER_FORM_BYTES_MAX)
    document = lenient_json.read(body)
    return lenient_json.write(read_queue_map(document.get("messageQueueTable"), int))


class ToldOffsets:
    """What the members of a group told, up to a limit for all together."""

    def __init__(self) -> None:
        # By client id.
        self._tables: dict[str, bytes] = {}
        self._bytes = 0

    def add(self, answer: RemotingCommand, client_id: str) -> None:
        """Takes over the answer of one, where it is one and there is room.

        Raises:
            RemoteProtocolError: it is none, or too long.
        """
        if answer.code != ResponseCode.SUCCESS:
            return
        table = told_table(answer.body)
        if self._bytes + len(table) <= ALL_BYTES_MAX and client_id not in self._tables:
            self._tables[client_id] = table
            self._bytes += len(table)

    def encode(self) -> bytes:
        """Returns a GetConsumerStatusBody."""
        rows = [
            b"%b:%b" % (lenient_json.write(name), table) for name, table in self._tables.items()
        ]
        return b'{"consumerTable":{%b},"messageQueueTable":{}}' % b",".join(rows)
