"""When a silent peer is asked, and when it is given up."""

import pytest

from ledgermq.client.silence import Silence, Verdict

WAIT, ASK, GONE = Verdict.WAIT, Verdict.ASK, Verdict.GONE


def waiting(now_ms: int = 10_000) -> Silence:
    """A request waits since `now_ms`, on a connection that was quiet before."""
    silence = Silence(3000, 0)
    silence.begin(now_ms)
    return silence


def test_asks_after_half_of_the_longest_silence_and_gives_up_after_all_of_it() -> None:
    silence = waiting()
    assert silence.due_ms == 11_500
    assert silence.judge(11_499, 0) is WAIT
    assert silence.judge(11_500, 0) is ASK
    assert silence.due_ms == 13_000
    assert silence.judge(12_999, 0) is WAIT
    assert silence.judge(13_000, 0) is GONE


@pytest.mark.parametrize("heard_ms", [11_501, 12_000, 12_999])
def test_anything_that_comes_after_the_question_answers_it(heard_ms: int) -> None:
    silence = waiting()
    assert silence.judge(11_500, 0) is ASK
    silence.heard_ms = heard_ms
    assert silence.judge(13_000, 0) is WAIT
    assert silence.due_ms == heard_ms + 1500


def test_what_came_before_the_question_does_not_answer_it() -> None:
    silence = waiting()
    silence.heard_ms = 10_400
    assert silence.judge(11_900, 0) is ASK
    assert silence.judge(13_400, 0) is GONE


def test_late_look_asks_before_it_gives_up() -> None:
    """The program may have kept the loop for itself, and nobody could be asked."""
    silence = waiting()
    assert silence.judge(99_000, 0) is ASK
    assert silence.judge(100_499, 0) is WAIT
    assert silence.judge(100_500, 0) is GONE


def test_bytes_that_are_taken_are_a_sign_of_life_and_bytes_that_lie_are_none() -> None:
    silence = waiting()
    assert silence.judge(11_500, 5000) is ASK
    assert silence.judge(13_000, 4999) is WAIT
    assert silence.due_ms == 14_500
    # More was written meanwhile.
    assert silence.judge(14_000, 9000) is WAIT
    assert silence.judge(14_500, 9000) is GONE


def test_new_wait_begins_without_an_open_question() -> None:
    silence = waiting()
    assert silence.judge(11_500, 0) is ASK
    silence.begin(20_000)
    assert silence.judge(20_001, 0) is WAIT
    assert silence.judge(21_500, 0) is ASK
