"""Both forms of the encoder of records give the same, and what the encoder of one record gives."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.commitlog import AppendMessage
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.errors import MessageIllegalError
from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name
from ledgermq.commitlog.row import TopicQueue
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.record import encode_record
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.commitlog.encoding")
STORED_MS = 1_700_000_000_000


def begun_queue(topic: str, queue_id: int) -> TopicQueue:
    """A queue whose next message gets the offset 100."""
    files = DerivedFiles(RealFileSystem(), 10)
    queues = ConsumeQueues(RealFileSystem(), "/nowhere", files, 6_000_000)
    if is_queue_name(topic, queue_id):
        queues.get(topic, queue_id).restore(100, 100)
    return TopicQueue(topic.encode(), queue_id, queues)


def whole(bits: int) -> st.SearchStrategy[int]:
    """Numbers that mostly fit in so many bits."""
    limit = 2 ** (bits - 1)
    return st.one_of(
        st.integers(0, 9), st.integers(-limit, limit - 1), st.sampled_from([limit, -limit - 1])
    )


_usual_hosts = st.tuples(st.binary(min_size=4, max_size=4), st.integers(0, 65_535))
_hosts = st.one_of(
    _usual_hosts,
    st.tuples(st.sampled_from([b"\x01" * 16, b"\x02" * 4, b"\x03"]), st.integers(-1, 2**32)),
)
_usual = st.builds(
    AppendMessage,
    topic=st.sampled_from(["T", "%RETRY%group", "t" * 127]),
    queue_id=st.integers(0, 3),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12, 0x10, 0x30]),
    born_timestamp=st.integers(-(2**63), 2**63 - 1),
    born_host=_usual_hosts,
    store_host=_usual_hosts,
    reconsume_times=st.integers(0, 16),
    prepared_transaction_offset=st.integers(0, 2**63 - 1),
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
)
_odd = st.builds(
    AppendMessage,
    topic=st.sampled_from(["T", "t" * 128]),
    queue_id=whole(32),
    flag=whole(32),
    sys_flag=whole(32),
    born_timestamp=whole(64),
    born_host=_hosts,
    store_host=_hosts,
    reconsume_times=whole(32),
    prepared_transaction_offset=whole(64),
    body=st.just(b"body"),
    properties=st.sampled_from([b"", b"p" * 32_767, b"p" * 32_768]),
)


def encoded(form: Any, messages: list[AppendMessage]) -> tuple[Any, ...]:
    """Records and offsets as a form gives them, or the field that it refuses."""
    queues: dict[tuple[str, int], TopicQueue] = {}

    def find(message: AppendMessage, position: int) -> TopicQueue:
        assert (message.topic, message.queue_id) not in queues
        return begun_queue(message.topic, message.queue_id)

    try:
        records, numbers, changed = form.encode_messages(
            messages, STORED_MS, 1, queues, find, None, 4_000_000
        )
    except Exception as error:
        assert type(error).__name__ == MessageIllegalError.__name__
        return (str(error), error.args[-1])
    assert changed == {}
    for queue, _ in numbers:
        queue.keep(1)
    return records, [number for _, number in numbers], [queue.next_offset for queue, _ in numbers]


@given(st.lists(_usual, min_size=1, max_size=6))
def test_records_of_a_turn_are_what_each_is_by_itself(messages: list[AppendMessage]) -> None:
    results = [encoded(form, messages) for form in FORMS]
    assert all(result == results[0] for result in results)
    records, numbers, _ = results[0]
    for message, record, number in zip(messages, records, numbers, strict=True):
        topic, queue_id, flag, sys_flag, born, born_host, store_host, times, at, body, text = (
            message
        )
        assert record == encode_record(
            topic.encode(), queue_id, flag, number, 0, sys_flag, born, born_host, STORED_MS,
            store_host, times, at, body, text,
        )  # fmt: skip


@given(_odd)
def test_what_does_not_fit_is_refused_by_all_forms_alike(message: AppendMessage) -> None:
    results = [encoded(form, [message]) for form in FORMS]
    assert all(result == results[0] for result in results)
    fields = list(message)
    fields[0] = message.topic.encode()
    is_counted = is_queue_name(message.topic, message.queue_id) and not message.sys_flag & 4
    number = 100 if is_counted else 0
    fields[3:3] = [number, 0]
    fields.insert(8, STORED_MS)
    if len(results[0]) == 2:
        with pytest.raises(LocalProtocolError):
            encode_record(*fields)
    else:
        assert results[0][0] == [encode_record(*fields)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"compiled={form.COMPILED}")
def test_body_over_the_limit_is_named_with_its_place(form: Any) -> None:
    host = (b"\x7f\x00\x00\x01", 1)
    small = AppendMessage("T", 0, 0, 0, 0, host, host, 0, 0, b"x", b"")
    large = small._replace(body=bytes(4_000_001))
    text, place = encoded(form, [small, large])
    assert "body bytes is 4000001" in text
    assert place == 1
