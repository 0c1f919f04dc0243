"""Names of topics for names of queues."""

import re

from ledgermq.celery.names import claims_topic, mail_tag, task_topic

ODD = (
    "celery@host.celery.pidbox",
    "fast lane",
    "müll",
    "a" * 300,
    "a" * 299 + "b",
    "a.b",
    "a/b",
    "a_b",
    "%RETRY%x",
)


def test_readable_names_stay() -> None:
    assert task_topic("celery") == "kombu_q_celery"
    assert claims_topic("celery") == "kombu_c_celery"
    assert task_topic("high-priority_2") == "kombu_q_high-priority_2"


def test_any_name_makes_a_legal_topic_of_its_own() -> None:
    topics = [make(name) for name in ODD for make in (task_topic, claims_topic)]
    assert len(set(topics)) == len(topics)
    for topic in topics:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,96}", topic), topic


def test_a_queue_cannot_take_the_topic_of_another() -> None:
    topic = task_topic("fast lane")
    assert task_topic(topic.removeprefix("kombu_q_")) != topic


def test_the_key_of_a_direct_exchange_is_in_the_tag() -> None:
    assert mail_tag("e", "direct", "a") != mail_tag("e", "direct", "b")
    assert mail_tag("e", "topic", "a") == mail_tag("e", "topic", "b")
    assert mail_tag("e", "fanout", "a") != mail_tag("f", "fanout", "a")
    assert mail_tag("", "direct", "q") != mail_tag("e", "direct", "q")
