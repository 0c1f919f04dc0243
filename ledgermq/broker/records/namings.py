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
from ledgermq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    PROPERTIES_BYTES_MAX,
    RETRY_TOPIC,
    find_property,
    parse_properties,
)
from ledgermq.state.errors import IllegalMessageError

# Topics of copies: nothing of these goes into light queues.
_COPIED_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
# What is not stored of it: marks like WAIT, some tens of characters; more is borne.
_TAKEN_OUT_MAX: Final = 1024


class Naming(NamedTuple):
    """One name in a message."""

    topic: str
    # Where it came from; else a light queue.
    is_origin: bool


def namings_of(command: RemotingCommand) -> Iterator[Naming]:
    """Yields what the messages of a send, of one or a batch, name; a name may come again.

    Raises:
        IllegalMessageError: it has more than a send may have, and is not looked into.
        RemoteProtocolError: the header or the batch cannot be read.
    """
    header = decode_send_header(command)
    is_copy = header.topic.startswith(_COPIED_PREFIXES)
    mark = RETRY_TOPIC if is_copy else INNER_MULTI_DISPATCH
    for value in _values_of(mark, command, header):
        if is_copy:
            yield Naming(value, True)
        else:
            # Where one of the names is that of no light queue, none of them counts.
            for name in named_queues(value) or ():
                yield Naming(name, False)


def _values_of(
    mark: str, command: RemotingCommand, header: SendMessageRequestHeader
) -> Iterator[str]:
    """What a property says in those messages that have it, as their processor reads them."""
    if command.code != RequestCode.SEND_BATCH_MESSAGE and not header.batch:
        text = header.properties or ""
        check_properties(text)
        if mark in text and (value := parse_properties(text).get(mark)):
            yield value
        return
    name = mark.encode()
    if name in command.body:
        for message in decode_batch(command.body):
            if found := find_property(message.properties, name):
                yield found.decode("utf-8", "replace")


def check_properties(text: str) -> None:
    """Checks the properties of a message before anybody looks into them.

    Raises:
        IllegalMessageError: they are too long whatever is taken out of them.
    """
    if len(text) > PROPERTIES_BYTES_MAX + _TAKEN_OUT_MAX:
        raise IllegalMessageError(
            f"the message is illegal: its properties have {len(text)} characters,"
            f" allowed are {PROPERTIES_BYTES_MAX}"
        )
