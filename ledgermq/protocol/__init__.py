"""Bytes <-> values of the RocketMQ protocol.

The room holds the frames and commands of the remoting protocol, the typed headers and bodies of its
requests, the record format of messages, and the Twisted transport around them. Contract: whatever
the bytes, a decoder gives a value or raises RemoteProtocolError; only transport does I/O. Read
command.py first, then framing.py and headers.
"""

from ledgermq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from ledgermq.protocol.command import RemotingCommand, decode, encode, encode_parts
from ledgermq.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder

__all__ = [
    "FrameDecoder",
    "LanguageCode",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "RemotingCommand",
    "RequestCode",
    "ResponseCode",
    "SerializeType",
    "decode",
    "encode",
    "encode_parts",
]
