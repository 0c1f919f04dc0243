"""Whole tables: topics (21), groups (201) and offsets (43), for tools and for members that copy.

Each account is shown what it may see of them. Source: `AdminBrokerProcessor.java`,
`ConsumerManageProcessor.java`.
"""

from ledgermq.broker.dispatch import Answer
from ledgermq.broker.encoded_list import EncodedList
from ledgermq.broker.sight import groups_of_table, pairs_of_table, topics_of_table
from ledgermq.protocol import lenient_json
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import SlicedAnswers
from ledgermq.state.broker_state import BrokerState


class TableLists:
    """Answers with the tables of one broker's state."""

    def __init__(self, state: BrokerState, sliced: SlicedAnswers) -> None:
        """Binds the tables; `sliced` makes long answers."""
        topics, groups, offsets = state.topics, state.groups, state.offsets
        quickly = lenient_json.write_plain
        self._topics = EncodedList(
            topics.document, topics_of_table, sliced, quickly, lambda: topics.generation
        )
        self._groups = EncodedList(
            groups.document, groups_of_table, sliced, quickly, lambda: groups.generation
        )
        self._offsets = EncodedList(offsets.document, pairs_of_table, sliced)

    def list_topics(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_ALL_TOPIC_CONFIG (21)."""
        return self._topics.answer(connection, command)

    def list_groups(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        return self._groups.answer(connection, command)

    def list_offsets(self, connection: CommandProtocol, command: RemotingCommand) -> Answer:
        """GET_ALL_CONSUMER_OFFSET (43)."""
        return self._offsets.answer(connection, command)
