"""What the messages of a send name besides their topic; others go by it. Pure.

A retry or a dead letter says which topic it came from: whoever sends it anew sends it there. Any
other message may name light queues that it is to stand in, too.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ledgermq.commitlog import named_queues
from ledgermq.protocol.batch import decode_batch
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import SendMessageRequestHeader, decode_send_header
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.protocol.properties import INNER_MULTI_DISPATCH, RETRY_TOPIC, parse_properties

# Topics of copies: nothing of these goes into light queues.
_COPIED_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_MARKS: Final = (INNER_MULTI_DISPATCH, RETRY_TOPIC)
_BYTE_MARKS: Final = tuple(mark.encode() for mark in _MARKS)


class Naming(NamedTuple):
    """One name in a message."""

    topic: str
    # Where it came from; else a light queue.
    is_origin: bool


def namings_of(command: RemotingCommand) -> Iterator[Naming]:
    """Returns what the messages of a send, of one or a batch, name; a name may come again.

    Raises:
        RemoteProtocolError: the header or the batch cannot be read.
    """
    header = decode_send_header(command)
    for text in _properties_of(command, header):
        properties = parse_properties(text)
        if header.topic.startswith(_COPIED_PREFIXES):
            origin = properties.get(RETRY_TOPIC)
            if origin is not None:
                yield Naming(origin, True)
        else:
            # Where one of the names is that of no light queue, none of them counts.
            for name in named_queues(properties.get(INNER_MULTI_DISPATCH, "")) or ():
                yield Naming(name, False)


def _properties_of(command: RemotingCommand, header: SendMessageRequestHeader) -> Iterator[str]:
    """The properties of those messages that may name something, as their processor reads them."""
    if command.code != RequestCode.SEND_BATCH_MESSAGE and not header.batch:
        text = header.properties or ""
        if any(mark in text for mark in _MARKS):
            yield text
    elif any(mark in command.body for mark in _BYTE_MARKS):
        for message in decode_batch(command.body):
            if any(mark in message.properties for mark in _BYTE_MARKS):
                yield message.properties.decode("utf-8", "replace")
