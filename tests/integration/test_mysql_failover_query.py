"""A query through three failovers: each time the source is killed, and the query continues with the replica."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from services.mysql import mysql_pair, mysql_replica
from services.wait_until import wait_until
from tests.integration.killed_driver import KEEP_LOGS
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_delivered import Delivered, fill, held
from tests.integration.mysql_streams import PASSWORD, RIGHTS, USER, make_user
from tests.integration.mysql_writers import writers
from tests.spark.queries import Streams

pytestmark = [
    pytest.mark.service, pytest.mark.timeout(1_800),
    pytest.mark.long("test_what_was_not_read_on_one_server_is_read_on_the_other"),
]  # fmt: skip

_log = logging.getLogger(__name__)
_NAME = "changes"
_FAIL_OVERS = 3
_KEYS = 3_000
_CHUNK_ROWS = 100
_BATCHES = 4
"""Of each server, before it is killed."""
_SECONDS = 240


@dataclass(frozen=True)
class Aftermath:
    """What is left after the failovers and a run to the end."""

    delivered: Delivered
    held: dict[int, tuple[Any, ...]]
    """What the last server holds."""
    replayed: int
    """Batches that were planned on one server and done on another."""


def stream(spark: SparkSession, database: Database) -> DataFrame:
    server = database.server
    options: dict[str, Any] = {
        "hostname": server.host, "port": server.port, "username": USER, "password": PASSWORD,
        "tables": f"{database.name}.t", "snapshotChunkRows": _CHUNK_ROWS, "snapshotParallelism": 2,
    }  # fmt: skip
    return spark.readStream.format("mysql-cdc-wm").options(**options).load()


@pytest.fixture(scope="module")
def aftermath(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    streams = Streams(spark, Path(tmp_path_factory.mktemp("failover")))
    spark.conf.set(*KEEP_LOGS)
    replayed = 0
    with ExitStack() as stack:
        pair = stack.enter_context(mysql_pair(semi_synchronous=True))
        make_user(pair.source, USER, *RIGHTS)
        # Its last server is another one than its first.
        database = stack.enter_context(new_database(pair.source, drop=False))
        fill(database, rows=_KEYS // 2)
        for number in range(_FAIL_OVERS):
            known = len(streams.committed(_NAME)) if number else 0
            with writers(database, "t", count=2, keys=_KEYS, pause=0.005, seed=number):
                query = streams.start_file(stream(spark, database), _NAME)
                wait_until(lambda: done(streams) >= known + _BATCHES, _SECONDS, "some batches")  # noqa: B023
                wait_until(lambda: planned(streams) > done(streams), _SECONDS, "a batch that is not done")
                pair.source.kill()
                query.stop()
                time.sleep(0.5)
            replayed += planned(streams) > done(streams)
            pair.promote()
            pair = stack.enter_context(mysql_replica(pair.replica, semi_synchronous=True))
            database = replace(database, server=pair.source)
        with writers(database, "t", count=2, keys=_KEYS, pause=0.005, seed=99):
            streams.run(stream(spark, database), _NAME)
        streams.run(stream(spark, database), _NAME)
        spark.conf.unset(KEEP_LOGS[0])
        yield Aftermath(Delivered.of(streams, _NAME), held(database), replayed)
        streams.stop()


def done(streams: Streams) -> int:
    folder = streams.checkpoint(_NAME) / "commits"
    return sum(f.name.isdigit() for f in folder.iterdir()) if folder.exists() else 0


def planned(streams: Streams) -> int:
    folder = streams.checkpoint(_NAME) / "offsets"
    return sum(f.name.isdigit() for f in folder.iterdir()) if folder.exists() else 0


def test_what_was_delivered_is_what_the_last_server_holds(aftermath: Aftermath) -> None:
    rows = aftermath.delivered.rows
    copy = copy_of(rows)
    _log.info("%d rows, %d batches done on another server", len(rows), aftermath.replayed)
    assert (copy.lost, copy.doubled) == (0, 0)
    assert copy.table == aftermath.held
    assert len(rows) > len(aftermath.held) > 100


def test_every_server_was_read_and_versions_grew_from_one_to_the_next(aftermath: Aftermath) -> None:
    states, places = aftermath.delivered.states, aftermath.delivered.places
    copies = [state.origin.copy for state in states if state.origin is not None]
    assert len(set(copies)) == _FAIL_OVERS + 1
    assert aftermath.replayed
    assert copies == sorted(copies, key=copies.index)
    ends = [t.position for state in states for s, t in state.splits.items() if s.log == "binlog"]
    assert ends == sorted(ends)
    assert len(set(places)) == len(places)


def test_no_watermark_ever_regresses(aftermath: Aftermath) -> None:
    watermarks = aftermath.delivered.watermarks
    assert watermarks == sorted(watermarks)
    assert len(set(watermarks)) > 3
    assert aftermath.delivered.markers == aftermath.delivered.due_markers
