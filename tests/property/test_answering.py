"""Both forms of what waits for a commit: the same answers, and those of the encoder of one."""

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.broker.sends.waiting import encode_untraced_response, without_slaves
from ledgermq.commitlog import AppendResult
from ledgermq.protocol.headers import encode_send_response, send_response_pieces
from tests.kernel_forms import forms_of

FORMS = forms_of("ledgermq.broker.sends.answering")
PREFIX = "7F00000100002A9F"
REGIONS = ["DefaultRegion", "Ünder 100%", '"queueOffset":"0"', "%d"]


def done(results: Any, error: Any) -> None:
    """Somebody of the broker itself who waits."""


_requests = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.integers(-(2**31), 2**31 - 1),
        st.sampled_from([0, 1]),
        st.integers(0, 2**31 - 1),
        st.integers(1, 3),
        st.integers(1, 4 << 20),
        st.sampled_from([None, None, done, without_slaves]),
    ),
    max_size=8,
)


def waited(form: Any, requests: list[Any], first_offset: int) -> Any:
    count = sum(request[4] for request in requests)
    results = [
        AppendResult(10 + i, min(first_offset + 100 * i, 2**63 - 1), 90, first_offset // 2, 7)
        for i in range(count)
    ]
    return form.wait_for(requests, results, PREFIX, 2.5, without_slaves, [0] * 8)


@given(_requests, st.integers(0, 2**63 - 1), st.integers(8, 30), st.sampled_from(REGIONS))
def test_answers_are_those_of_the_encoder_of_one(
    requests: list[Any], first_offset: int, end_index: int, region: str
) -> None:
    queues = [waited(form, requests, first_offset) for form in FORMS]
    assert all(queue == queues[0] for queue in queues)
    for_all, not_for_slaves = queues[0]
    assert len(for_all) + len(not_for_slaves) == len(requests)
    for pieces, encode in (
        (send_response_pieces(region), encode_send_response),
        (None, encode_untraced_response),
    ):
        answers = []
        for form in FORMS:
            waiting = deque(for_all)
            answers.append((form.take_answers(waiting, end_index, pieces, encode, region), waiting))
        assert all(answer == answers[0] for answer in answers)
        (frames_of, dones, count, size), rest = answers[0]
        taken = [entry for entry in for_all if entry[0] < end_index]
        assert list(rest) == for_all[len(taken) :]
        assert (count, size) == (sum(e[7] for e in taken), sum(e[8] for e in taken))
        assert dones == [(done, e[11]) for e in taken if e[1] is None and e[10] is not None]
        assert frames_of == {
            name: [encode(e[2], e[3], e[4], e[5], e[6], region) for e in taken if e[1] == name]
            for name in {e[1] for e in taken if e[1] is not None}
        }


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"compiled={form.COMPILED}")
def test_batch_waits_for_its_last_message_and_names_all(form: Any) -> None:
    ((entry,), others) = waited(form, [("a", 1, 0, 3, 3, 50, None)], 48)
    assert others == []
    assert entry[0] == 12
    assert entry[4] == ",".join(f"{PREFIX}{48 + 100 * i:016X}" for i in range(3))
