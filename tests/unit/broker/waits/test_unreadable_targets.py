"""A waiting message whose real topic is no text waits for nobody."""

from ledgermq.broker.records.delayed_messages import target_of
from ledgermq.protocol.properties import REAL_QUEUE_ID, REAL_TOPIC, decode_any_properties


def test_bytes_that_are_no_text_name_no_topic() -> None:
    told = f"{REAL_TOPIC}\x01orders\x02{REAL_QUEUE_ID}\x010\x02".encode()
    target = target_of(decode_any_properties(told))
    assert target is not None and target.topic == "orders"
    assert target_of(decode_any_properties(told.replace(b"orders", b"ord\xffers"))) is None
