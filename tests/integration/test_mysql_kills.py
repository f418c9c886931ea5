"""Kill -9 during a snapshot and the binlog after it: what was delivered is what the server holds, as if nothing was.

As test_kills.py, with one query over a MySQL table; the server is killed too.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession

from services.deadline import wait_until
from services.mysql import mysql_service
from services.spark_cluster import SparkCluster, spark_cluster
from services.where import Where
from tests.integration.killed_driver import KEEP_LOGS
from tests.integration.killed_mysql_driver import CHANGES, CHUNK_ROWS, CHUNKS, PASSWORD, USER, MySqlJob
from tests.integration.killing import Killer, schedule
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_streams import RIGHTS, make_user
from tests.integration.mysql_writers import writers
from tests.integration.outages import Outages
from tests.spark.queries import Streams
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.state import SourceState

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_BATCHES_A_KILL = 3
"""Of the snapshot, so that it lasts for half of the kills; the others wait for its end."""
_SNAPSHOT_SECONDS = 600
"""The longest wait for it, on a busy machine."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Aftermath:
    """What is left after the kills and one more run to the end."""

    rows: list[tuple[Any, ...]]
    """Version, number, type, id, name, amount; in order."""
    markers: list[int]
    """Watermarks, in order."""
    held: dict[int, tuple[Any, ...]]
    """What the server holds."""
    states: list[SourceState]
    kills_in_snapshot: int
    killer: Killer


def is_copying(streams: Streams) -> bool:
    return "snapshot" in streams.offsets(CHANGES)[-1]


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with mysql_service(where=Where.LOCAL) as server, new_database(server) as made:
        make_user(server, USER, *RIGHTS, password=PASSWORD)
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with spark_cluster(["127.0.0.1"], cores=2) as made:
        yield made


@pytest.fixture(scope="module")
def aftermath(
    request: pytest.FixtureRequest,
    database: Database,
    cluster: SparkCluster,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Aftermath:
    kills, seed = request.config.getoption("--mysql-kills"), request.config.getoption("--kills-seed")
    folder = tmp_path_factory.mktemp("mysql-kills")
    keys = CHUNKS * CHUNK_ROWS * _BATCHES_A_KILL * kills
    values = ", ".join(f"({2 * i}, 'n{i}', {i})" for i in range(keys // 2))
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)", f"INSERT INTO t VALUES {values}"
    )
    server = database.server
    job = MySqlJob(cluster.master_url, folder, f"{server.host}:{server.port}", f"{database.name}.t")
    killer = Killer(job, cluster, Outages(server), random.Random(seed))
    streams = Streams(spark, folder)
    in_snapshot = 0
    try:
        killer.start()
        with writers(database, "t", count=2, keys=keys, pause=0.01, seed=seed):
            for number, (kind, moment) in enumerate(schedule(kills, random.Random(seed)), 1):
                killer.strike(kind, moment)
                in_snapshot += is_copying(streams)
                if number == kills // 2:
                    killer.recover()
                    wait_until(lambda: not is_copying(streams), _SNAPSHOT_SECONDS, "the end of the snapshot")
    finally:
        killer.close()
    spark.conf.set(*KEEP_LOGS)
    try:
        for writer in job.queries(spark).values():
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(KEEP_LOGS[0])
    found = streams.result(CHANGES)
    order = ("_commit_version", "_change_number")
    rows = found.where("marker IS NULL").select(*order, "_change_type", "id", "name", "amount").orderBy(*order)
    marked = found.selectExpr("unix_millis(marker.watermark) AS w").where("marker.type = 'watermark'")
    codec = OffsetCodec(source="mysql-cdc-wm", name="mysql-cdc-wm")
    _log.info("seed %d, %s", seed, [(k.kind.value, k.moment.value, k.uncommitted) for k in killer.kills])
    _log.info("recovered within %s s", [(kind.value, round(s, 1)) for kind, s in killer.recoveries])
    _log.info("outages of %s s", [round(s, 1) for s in killer.outages.seconds])
    return Aftermath(
        [tuple(row) for row in rows.collect()],
        sorted(row.w for row in marked.collect()),
        {row[0]: row for row in database.run("SELECT id, name, amount FROM t")},
        [codec.decode(offset) for offset in streams.offsets(CHANGES)],
        in_snapshot,
        killer,
    )


def test_what_was_delivered_is_what_the_server_holds(aftermath: Aftermath) -> None:
    copy = copy_of(aftermath.rows)
    _log.info("%d rows, %d lost, %d doubled", len(aftermath.rows), copy.lost, copy.doubled)
    assert (copy.lost, copy.doubled) == (0, 0)
    assert copy.table == aftermath.held
    assert len(aftermath.rows) > len(aftermath.held) > 100


def test_no_change_came_twice(aftermath: Aftermath) -> None:
    places = [(version, number) for version, number, kind, *_ in aftermath.rows if number or kind != "insert"]
    assert len(set(places)) == len(places)


def test_no_watermark_ever_regresses(aftermath: Aftermath) -> None:
    recorded = [w for state in aftermath.states if (w := state.watermark) is not None]
    assert recorded == sorted(recorded)
    assert len(set(recorded)) > 3


def test_the_marker_of_every_batch_comes_out_exactly_once(aftermath: Aftermath) -> None:
    states = aftermath.states
    read = [states[0], *(after for before, after in pairwise(states) if after != before)]
    assert aftermath.markers == [state.watermark for state in read if state.watermark is not None]


def test_kills_hit_the_snapshot_and_the_binlog(aftermath: Aftermath) -> None:
    assert 0 < aftermath.kills_in_snapshot < len(aftermath.killer.kills)
    assert any(state.frontiers for state in aftermath.states)
    assert not aftermath.states[-1].frontiers


def test_nothing_outlives_a_killed_driver(aftermath: Aftermath) -> None:
    assert aftermath.killer.orphans == []
