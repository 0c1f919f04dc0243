"""Names of topics that clients, brokers and tools know alike.

Source: MixAll.java, TopicValidator.java.
"""

from typing import Final

# The topic whose settings a topic takes that a send creates.
DEFAULT_TOPIC: Final = "TBW102"
# Before the name of a group: the topic of messages that it gave back, and of those given up.
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
# Before the name of a light queue: messages of other topics stand in it, too.
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
# What `ledgermq up --round-trip` sends to and consumes as, once a start.
ROUND_TRIP_TOPIC: Final = "LedgerMQ_RoundTrip"
ROUND_TRIP_GROUP: Final = "ledgermq_round_trip"
