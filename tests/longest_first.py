"""Which test files take longest: they begin first, so that no process is still at one when the others are done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FILES = (
    "tests/integration/test_kills.py",
    "tests/integration/test_quickstart.py",
    "tests/integration/test_mysql_kills.py",
    "tests/unit/group_store/test_heartbeat_client.py",
    "tests/integration/test_connectors_conform.py",
    "tests/integration/test_spark_cluster.py",
    "tests/integration/test_kafka_three_brokers.py",
    "tests/integration/test_job_chain.py",
    "tests/integration/test_announcing.py",
    "tests/integration/test_kafka_lineage.py",
    "tests/integration/test_docs_lines.py",
    "tests/integration/test_first_hour.py",
    "tests/integration/test_event_time_ordering.py",
    "tests/integration/test_mysql_verify.py",
    "tests/integration/test_kafka_reading_faults.py",
    "tests/spark/test_connect.py",
    "tests/integration/test_pipeline_windows.py",
    "tests/spark/test_end_of_time.py",
    "tests/spark/test_restart.py",
    "tests/integration/test_kafka_broker_trouble.py",
    "tests/spark/test_follow_rows.py",
    "tests/spark/test_temporal_join_refusals.py",
    "tests/spark/test_temporal_join.py",
    "tests/integration/test_temporal_join.py",
    "tests/spark/test_operator_watermarks.py",
    "tests/integration/test_group_of_sources.py",
    "tests/integration/test_operator_examples.py",
    "tests/integration/test_kafka_driver_side.py",
    "tests/integration/test_kafka_tokens.py",
    "tests/spark/test_surfaces.py",
    "tests/spark/test_kill.py",
    "tests/integration/test_join_kills.py",
    # These run by night alone, or most of what they have.
    "tests/integration/test_group_faults.py",
    "tests/integration/test_group_kills.py",
    "tests/integration/test_mysql_failover_query.py",
    "tests/integration/test_mysql_auto_cdc.py",
    "tests/integration/test_mysql_example.py",
    "tests/integration/test_clickstream_example.py",
    "tests/integration/test_ordering_kills.py",
)
"""The longest first, any that takes a minute or more; those that mostly wait are among those that compute."""


def in_order(files: Sequence[Path], root: Path) -> list[int]:
    """Return the indices of ``files`` in the order in which they are to begin; the others stay as they are."""
    turn = {root / file: number for number, file in enumerate(FILES)}
    return sorted(range(len(files)), key=lambda index: turn.get(files[index], len(FILES)))
