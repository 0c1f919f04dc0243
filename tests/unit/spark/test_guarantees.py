"""Each line of the table of guarantees in docs/spark.md has tests that hold it."""

import ast
import re
from pathlib import Path

import pytest

from ledgermq.spark import RocketMQDataSource
from ledgermq.spark.errors import OptionError
from ledgermq.spark.schema import message_schema

ROOT = Path(__file__).parents[3]
FAULTS = "tests/spark/cluster_faults.py"
ONCE_FAULTS = "tests/spark/once_faults.py"
CRASHES = "tests/spark/test_archive_crashes.py"
PULLING = "tests/unit/spark/test_pulling.py"
# By the first cell of a line: a test function, or a program of `make spark-cluster`.
TESTS = {
    "a table of a topic, `spark.read`": [
        "tests/spark/test_batch_read.py::test_small_fetches_and_many_partitions_give_the_same_rows",
        f"{PULLING}::test_lost_connections_and_leaders_leave_no_hole",
        f"{PULLING}::test_removed_messages_are_an_error_or_a_gap",
        FAULTS,
    ],
    "a stream, `spark.readStream`": [
        "tests/spark/test_session.py::test_a_stream_from_topic_to_topic_goes_on_where_it_ended",
        "tests/spark/test_stream_read.py::"
        "test_a_query_that_dies_before_its_first_batch_is_done_goes_on_from_its_start",
        "tests/spark/test_two_jobs.py::test_who_comes_late_ends_with_the_cause_and_doubles_nothing",
        "tests/spark/restarts.py",
    ],
    "`rocketmq.segments`": [
        "tests/spark/test_segments.py::test_only_what_is_committed_is_read",
        "tests/spark/test_segments.py::test_a_defect_is_named_and_no_row_is_left_out",
        "tests/spark/test_segments_in_a_store.py::test_a_store_gives_the_rows_of_a_disk",
    ],
    "`archive`: Parquet, Delta, Iceberg": [
        "tests/spark/test_jobs.py::test_archive_and_replay_keep_each_message_once",
        "tests/spark/test_jobs.py::test_an_archive_without_its_checkpoint_is_refused",
        "tests/spark/test_tables.py::test_a_table_has_each_message_once",
        "tests/spark/test_tables.py::"
        "test_a_table_and_a_checkpoint_that_do_not_belong_together_are_refused",
        f"{CRASHES}::test_tasks_that_outlive_their_driver_write_into_no_batch_of_the_next_one",
        "tests/spark/test_unwell_stores.py::"
        "test_a_store_that_spoils_each_request_once_loses_and_doubles_nothing",
        FAULTS,
    ],
    "`replay`, `dead-letters --resend`": [
        "tests/spark/test_jobs.py::test_archive_and_replay_keep_each_message_once",
        "tests/spark/test_jobs.py::test_dead_letters_are_told_and_sent_again_once",
        f"{CRASHES}::test_a_second_job_is_refused_with_the_host_and_process_of_the_first",
        ONCE_FAULTS,
    ],
    "`df.write` with `once=true`": [
        "tests/unit/spark/once/test_sender.py::test_rows_whose_answers_get_lost_are_stored_once",
        "tests/unit/spark/once/test_sender.py::"
        "test_the_next_try_leaves_out_what_the_one_before_it_stored",
        "tests/unit/spark/once/test_sender.py::test_what_no_other_try_would_change_ends_the_task",
        ONCE_FAULTS,
    ],
    "`df.write`": [
        "tests/spark/test_session.py::test_rows_become_messages",
        "tests/spark/test_retried_writes.py::"
        "test_rows_of_tasks_that_are_tried_again_in_another_order",
        FAULTS,
    ],
    "`writeStream` into a topic": [
        "tests/spark/test_session.py::test_a_stream_from_topic_to_topic_goes_on_where_it_ended",
        "tests/unit/spark/test_guarantees.py::test_a_stream_cannot_be_written_once",
    ],
    "`audit`, `traffic`, `trace`": [
        "tests/spark/test_audit.py::test_defects_of_several_replicas_are_found_in_tasks_of_spark",
        "tests/spark/test_jobs.py::test_traffic_counts_what_is_there",
        "tests/spark/test_jobs.py::test_traces_of_clients_are_read",
        FAULTS,
    ],
}


def lines_of_table() -> list[str]:
    """The first cells of the table."""
    text = (ROOT / "docs" / "spark.md").read_text()
    table = re.search(r"## Guarantees in one table\n\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    assert table is not None
    return [line.split("|")[1].strip() for line in table[1].splitlines()]


def test_each_line_has_tests() -> None:
    assert lines_of_table() == list(TESTS)


@pytest.mark.parametrize("name", sorted({name for names in TESTS.values() for name in names}))
def test_the_tests_are_there(name: str) -> None:
    path, _, function = name.partition("::")
    text = (ROOT / path).read_text()
    if function:
        functions = [n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
        assert function in functions
    elif path != "tests/spark/restarts.py":
        module = path.removesuffix(".py").replace("/", ".")
        assert f"-m {module}" in (ROOT / "Makefile").read_text()


def test_a_stream_cannot_be_written_once() -> None:
    """A batch that runs again is another write: what it has stored nobody would look for."""
    source = RocketMQDataSource({"nameServer": "127.0.0.1:1", "topic": "T", "once": "true"})
    with pytest.raises(OptionError, match="once"):
        source.streamWriter(message_schema(("topic", "body")), overwrite=False)
