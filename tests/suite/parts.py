"""What `make test` runs, and what is left of the suite for `make check`.

The short part is every test that needs no process of its own, and for each feature a short path
through running programs. A file or test that is named here is in the short part; everything else
but tests/interop is in the rest.
"""

from __future__ import annotations

from typing import Final

# Whole directories: functions and codecs.
DIRECTORIES: Final = ("tests/unit", "tests/property")

# Some two minutes of processor time for all of these together.
FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "a simulated group": (
        "tests/simulation/test_any_message.py",
        "tests/simulation/test_group.py::test_seed_that_found_a_defect",
        "tests/simulation/test_losses.py",
        "tests/simulation/test_scripts.py",
        "tests/simulation/test_sim_disk.py",
        "tests/simulation/test_traces.py",
    ),
    "send and pull": (
        "tests/e2e/test_broker_requests.py",
        "tests/e2e/test_client_cluster.py",
        "tests/e2e/test_client_batches.py",
        "tests/e2e/test_client_lite_pull.py",
    ),
    "the first steps of the README": ("tests/e2e/test_readme.py",),
    "ordered and broadcast consumers, transactions": ("tests/e2e/test_client_modes.py",),
    "delays, retries, dead letters, half messages": ("tests/e2e/test_waiting_messages.py",),
    "request and reply": ("tests/e2e/test_client_requests.py", "tests/e2e/test_replies.py"),
    "SQL filters": ("tests/e2e/test_sql_pulls.py",),
    "light queues": ("tests/e2e/test_light_queues.py",),
    "namespaces": ("tests/e2e/test_client_namespaces.py",),
    "accounts": (
        "tests/e2e/test_access_control.py::test_account_sends_and_pulls_what_is_its_own",
        "tests/attack/test_guard.py",
    ),
    "accounts, TLS and a secret in a group": (
        "tests/e2e/test_secure_init.py"
        "::test_an_application_sends_and_consumes_and_reaches_nothing_else",
    ),
    "TLS": ("tests/e2e/test_tls.py::test_client_sends_and_pulls_with_signature_in_tls",),
    "quotas": ("tests/attack/test_quotas.py",),
    "audit log": ("tests/e2e/test_audit_log.py",),
    "hostile input": (
        "tests/e2e/test_bad_input.py",
        "tests/attack/test_hostile_segments.py",
        "tests/attack/test_http_port.py",
    ),
    "a group that loses its leader": (
        "tests/e2e/test_broker_group.py::test_leader_serves_and_its_state_survives_it",
        "tests/e2e/test_broker_group.py::test_leader_that_was_killed_is_not_waited_for",
        "tests/e2e/test_replica_group.py",
    ),
    "the members of a group are fixed": (
        "tests/fault/test_member_lists.py::test_member_with_one_entry_does_not_serve_alone",
    ),
    "state files are rebuilt from the log": (
        "tests/e2e/test_state_files.py::test_damaged_state_files_are_made_again_from_the_log",
    ),
    "a store that loses its process or its power": (
        "tests/fault/test_store_crashes.py",
        "tests/fault/test_store_kill.py",
        "tests/fault/test_plain_crashes.py",
        "tests/fault/test_power_cuts.py",
    ),
    "a broker without a ledger": (
        "tests/e2e/test_plain_broker.py::test_a_stop_and_a_start_keep_offsets_and_delayed_messages",
    ),
    "a master and its slave": (
        "tests/e2e/test_master_slave.py"
        "::test_slave_copies_log_and_tables_by_tls_and_the_groups_secret",
    ),
    "name server": ("tests/e2e/test_namesrv.py",),
    "ledgermq up": ("tests/e2e/test_cli_up.py::test_up_tells_where_everything_is",),
    "commands": ("tests/e2e/test_cli_cluster.py", "tests/e2e/test_cli_admin_groups.py"),
    "AdminClient": ("tests/e2e/test_admin_client.py",),
    "console": (
        "tests/e2e/console/test_reads.py",
        "tests/e2e/console/test_changes.py",
        "tests/e2e/console/test_messages.py",
        "tests/e2e/console/test_dead_letters.py",
        "tests/console/test_static.py",
    ),
    "metrics and health": (
        "tests/e2e/test_metrics.py::test_traffic_and_lag_are_told",
        "tests/e2e/test_health.py::test_broker_that_is_alone_is_well",
    ),
    "traces": (
        "tests/e2e/test_client_traces.py",
        "tests/e2e/test_client_hooks.py",
        "tests/e2e/test_open_telemetry.py",
    ),
    "a cluster inside a test": (
        "tests/e2e/test_ledger_cluster.py::test_group_goes_on_without_its_leader",
        "tests/e2e/test_ledger_cluster.py::test_retries_follow_the_clock",
    ),
    "Celery": ("tests/e2e/test_celery.py",),
    "Django": ("tests/e2e/test_django_outbox.py",),
    "ASGI": ("tests/e2e/test_client_asgi.py",),
    "Arrow": ("tests/e2e/test_client_arrow.py",),
    "Spark reads and writes": (
        "tests/spark/test_batch_read.py",
        "tests/spark/test_stream_read.py",
        "tests/spark/test_session.py",
    ),
    "Spark on the files of a broker": ("tests/spark/test_segments.py",),
    "Spark jobs": (
        "tests/spark/test_jobs.py::test_dead_letters_are_told_and_sent_again_once",
        "tests/spark/test_jobs.py::test_traffic_counts_what_is_there",
        "tests/spark/test_tables.py::test_names_of_topics_are_no_part_of_paths",
    ),
}

SHORT: Final = (*DIRECTORIES, *(name for names in FEATURES.values() for name in names))
# Run apart, by `make interop`.
APART: Final = ("tests/interop",)


def arguments_of(part: str) -> list[str]:
    """What selects a part of the suite, `short` or `rest`, on pytest's command line."""
    if part == "short":
        return [*SHORT]
    skipped = [f"--deselect={name}" for name in SHORT if "::" in name]
    skipped += [f"--ignore={name}" for name in (*SHORT, *APART) if "::" not in name]
    return ["tests", *skipped]
