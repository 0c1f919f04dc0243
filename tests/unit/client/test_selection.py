"""Which queue a message goes to."""

from ledgermq.client.selection import next_queue, queue_of_key
from ledgermq.protocol.bodies import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]


def test_key_goes_to_one_queue_and_keys_spread() -> None:
    chosen = {queue_of_key(QUEUES, f"key-{i}") for i in range(100)}
    assert chosen == set(QUEUES)
    assert queue_of_key(QUEUES, "order-17") == queue_of_key(list(QUEUES), "order-17")


def test_queue_of_a_key_is_the_same_in_every_process() -> None:
    """CRC-32, not hash(): a stored order must survive a restart."""
    assert [queue_of_key(QUEUES, key).queue_id for key in ("", "a", "ключ")] == [0, 1, 0]
    assert queue_of_key(QUEUES, "\ud800") in QUEUES


def test_turns_go_round_the_queues_that_have_a_leader() -> None:
    masters = {"a": "x:1", "b": "y:1"}
    assert [next_queue(QUEUES, masters, turn) for turn in range(5)] == [*QUEUES, QUEUES[0]]
    without_a = {next_queue(QUEUES, {"b": "y:1"}, turn) for turn in range(8)}
    assert without_a == set(QUEUES[2:])


def test_broker_that_failed_is_avoided_when_there_is_another() -> None:
    masters = {"a": "x:1", "b": "y:1"}
    chosen = {next_queue(QUEUES, masters, turn, avoided_broker="a") for turn in range(8)}
    assert chosen == set(QUEUES[2:])
    alone = next_queue(QUEUES, {"a": "x:1"}, 0, avoided_broker="a")
    assert alone is not None
    assert alone.broker_name == "a"


def test_no_leader_means_no_queue() -> None:
    assert next_queue(QUEUES, {}, 0) is None
    assert next_queue([], {"a": "x:1"}, 3) is None
