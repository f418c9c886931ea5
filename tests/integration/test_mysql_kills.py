"""Kill -9 during a snapshot, and while the table is read again beside the binlog: what was delivered is what the server
holds, as if nothing was.

As test_kills.py, with one query over a MySQL table; the server is killed too.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from services.containers import Where
from services.mysql import mysql_service
from services.spark_cluster import SparkCluster
from services.wait_until import wait_until
from tests.integration.killed_driver import KEEP_LOGS
from tests.integration.killed_mysql_driver import AGAIN, CHANGES, CHUNK_ROWS, CHUNKS, PASSWORD, USER, MySqlJob
from tests.integration.killing import Killer, cluster_for, master_of, schedule
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_delivered import CODEC, Delivered, fill, held
from tests.integration.mysql_streams import RIGHTS, make_user
from tests.integration.mysql_writers import writers
from tests.integration.outages import Outages
from tests.spark.queries import Streams

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_BATCHES_A_KILL = 3
"""Of the snapshot, so that it lasts for half of the kills; the others wait for its end, and hit the second reading."""
_LATER_RUNS = 2
"""Each has a watermark of its own, however few batches there were before."""
_SNAPSHOT_SECONDS = 600
"""The longest wait for it, on a busy machine."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Aftermath:
    """What is left after the kills and one more run to the end."""

    delivered: Delivered
    held: dict[int, tuple[Any, ...]]
    """What the server holds."""
    kills_in_snapshot: int
    killer: Killer


def is_copying(streams: Streams, log: str) -> bool:
    """Return whether a reading of a table goes on."""
    return log in CODEC.decode(streams.offsets(CHANGES)[-1]).snapshots.frontiers


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with mysql_service(where=Where.LOCAL) as server, new_database(server) as made:
        make_user(server, USER, *RIGHTS, password=PASSWORD)
        yield made


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[SparkCluster | None]:
    with cluster_for(request.config.getoption("--mysql-kills")) as made:
        yield made


@pytest.fixture(scope="module")
def aftermath(
    request: pytest.FixtureRequest,
    database: Database,
    cluster: SparkCluster | None,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Aftermath:
    kills, seed = request.config.getoption("--mysql-kills"), request.config.getoption("--kills-seed")
    folder = tmp_path_factory.mktemp("mysql-kills")
    keys = CHUNKS * CHUNK_ROWS * _BATCHES_A_KILL * kills
    fill(database, rows=keys // 2)
    server = database.server
    job = MySqlJob(master_of(cluster), folder, f"{server.host}:{server.port}", f"{database.name}.t")
    killer = Killer(job, cluster, Outages(server), random.Random(seed))
    streams = Streams(spark, folder)
    in_snapshot = in_second_reading = 0
    try:
        killer.start()
        with writers(database, "t", count=2, keys=keys, pause=0.04, seed=seed):
            for number, (kind, moment) in enumerate(schedule(kills, random.Random(seed)), 1):
                killer.strike(kind, moment)
                is_first = is_copying(streams, job.table)
                in_snapshot += is_first
                in_second_reading += not is_first and is_copying(streams, f"{job.table}.{AGAIN}")
                if number == kills // 2:
                    killer.recover()
                    wait_until(lambda: not is_copying(streams, job.table), _SNAPSHOT_SECONDS, "the end of the snapshot")
    finally:
        killer.close()
    spark.conf.set(*KEEP_LOGS)
    try:
        for later in range(_LATER_RUNS):
            for writer in job.queries(spark).values():
                writer.trigger(availableNow=True).start().awaitTermination()
            database.run(f"INSERT INTO t VALUES ({keys + later}, 'later', {later})")
        for writer in job.queries(spark).values():
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(KEEP_LOGS[0])
    _log.info("seed %d, %s", seed, [(k.kind.value, k.moment.value, k.uncommitted) for k in killer.kills])
    _log.info("%d kills in the snapshot, %d in the second reading", in_snapshot, in_second_reading)
    _log.info("recovered within %s s", [(kind.value, round(s, 1)) for kind, s in killer.recoveries])
    _log.info("outages of %s s", [round(s, 1) for s in killer.outages.seconds])
    return Aftermath(Delivered.of(streams, CHANGES), held(database), in_snapshot, killer)


def test_what_was_delivered_is_what_the_server_holds(aftermath: Aftermath) -> None:
    rows = aftermath.delivered.rows
    copy = copy_of(rows)
    _log.info("%d rows, %d lost, %d doubled", len(rows), copy.lost, copy.doubled)
    assert (copy.lost, copy.doubled) == (0, 0)
    assert copy.table == aftermath.held
    assert len(rows) > len(aftermath.held) > 100


def test_no_change_came_twice(aftermath: Aftermath) -> None:
    places = aftermath.delivered.places
    assert len(set(places)) == len(places)


def test_every_row_that_was_always_there_was_read_again_once(aftermath: Aftermath) -> None:
    again, rows = aftermath.delivered.reread, aftermath.delivered.rows
    assert len(set(again)) == len(again)
    # As ``fill`` wrote them, and never away since: others may have come behind the second reading.
    first = {key for _, _, _, key, name, amount in rows if (key, name) == (2 * amount, f"n{amount}")}
    stayed = first - {row[3] for row in rows if row[2] == "delete"}
    assert stayed
    assert stayed <= set(again)
    assert any(AGAIN in log for state in aftermath.delivered.states for log in state.snapshots.frontiers)


def test_no_watermark_ever_regresses(aftermath: Aftermath) -> None:
    watermarks = aftermath.delivered.watermarks
    assert watermarks == sorted(watermarks)
    assert len(set(watermarks)) > 2


def test_the_marker_of_every_batch_comes_out_exactly_once(aftermath: Aftermath) -> None:
    assert aftermath.delivered.markers == aftermath.delivered.due_markers


def test_kills_hit_the_snapshot_and_the_binlog(aftermath: Aftermath) -> None:
    assert 0 < aftermath.kills_in_snapshot < len(aftermath.killer.kills)
    states = aftermath.delivered.states
    assert any(state.snapshots.frontiers for state in states)
    assert not states[-1].snapshots.frontiers


def test_nothing_outlives_a_killed_driver(aftermath: Aftermath) -> None:
    assert aftermath.killer.orphans == []
