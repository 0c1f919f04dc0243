"""Bodies of client heartbeats (34), and the words they use.

    {"clientID":"10.0.0.9@1",
     "consumerDataSet":[
       {"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",
        "groupName":"GroupA","messageModel":"CLUSTERING",
        "subscriptionDataSet":[
          {"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",
           "subVersion":1,"tagsSet":["TagA"],"topic":"TopicA"}],
        "unitMode":false}],
     "producerDataSet":[{"groupName":"pg"}]}

The C++ client sends the three words as numbers, leaves members out and quotes subVersion; the Go
client quotes the members of codeSet. All of that is read; words are written as names.

Source: HeartbeatData.java, ConsumerData.java, ProducerData.java, SubscriptionData.java.
"""

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers.header import Int32, Int64
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody


class ConsumeType(StrEnum):
    """Who asks for messages: the user (pull), or the client by itself (push)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    # 5.x
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each member of a group gets every message, or each message goes to one member."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without a stored offset begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


# Members of a consumer's data whose value may be the number of a word, by the name on the wire.
WORDS_BY_NUMBER: dict[str, list[str]] = {
    "consumeType": list(ConsumeType),
    "messageModel": list(MessageModel),
    "consumeFromWhere": list(ConsumeFromWhere),
}


class SubscriptionData(JsonBody, frozen=True):
    """SubscriptionData: which messages of a topic a group wants."""

    is_plain: ClassVar[bool] = True

    topic: str
    # The expression as the user gave it; "*" is everything.
    sub_string: str = "*"
    # Grows with each change; ms or ns, as the client likes.
    sub_version: Int64 = 0
    # Tags of the expression, and their hash codes; empty for "*" and for SQL.
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[Int32] = frozenset()
    # "TAG" or "SQL92"; an empty one is TAG.
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(JsonBody, frozen=True):
    """ProducerData: a group this client sends for."""

    is_plain: ClassVar[bool] = True

    group_name: str


class ConsumerData(JsonBody, frozen=True):
    """ConsumerData: a group this client consumes for, and how."""

    is_plain: ClassVar[bool] = True

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    @classmethod
    def repair(cls, value: Any) -> Any:
        return name_words(value)


class HeartbeatData(JsonBody, frozen=True):
    """HeartbeatData: a client and its groups."""

    is_plain: ClassVar[bool] = True
    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []

    @classmethod
    def repair(cls, value: Any) -> Any:
        consumers = value.get("consumerDataSet") if isinstance(value, dict) else None
        if isinstance(consumers, list):
            return {**value, "consumerDataSet": [name_words(consumer) for consumer in consumers]}
        return value


def name_words(value: Any) -> Any:
    """Replaces numbers by the words they stand for, in the members that have such words.

    Raises:
        RemoteProtocolError: there is no word of that number.
    """
    if not isinstance(value, dict):
        return value
    named = dict(value)
    for member, words in WORDS_BY_NUMBER.items():
        number = named.get(member)
        if isinstance(number, int):
            if not 0 <= number < len(words):
                raise RemoteProtocolError(member, number, f"0 to {len(words) - 1}")
            named[member] = words[number]
    return named
