"""Passwords are in nothing that a query leaves behind or shows: plans, progress, errors, checkpoints, logs, tasks."""

from __future__ import annotations

import logging
import pickle
import traceback

import pytest

from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.source import MySqlSource
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import PASSWORD, USER, MySqlStreams
from watermark_source.errors import WatermarkSourceError

pytestmark = pytest.mark.service


def test_a_query_shows_and_keeps_no_password(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9))", "INSERT INTO t VALUES (1, 'one')")
    frame = mysql_streams.source()
    query = mysql_streams.run(frame, "all")
    mysql_streams.run_sql("UPDATE t SET name = 'uno'", "TRUNCATE t")
    with pytest.raises(Exception, match=r"changed .* as a whole") as failed:
        mysql_streams.run(frame, "all")
    shown = [
        frame._jdf.queryExecution().toString(), str(query.recentProgress), str(query.status),
        "".join(traceback.format_exception(failed.value)),
    ]  # fmt: skip
    assert all(len(each) > 20 for each in shown)
    files = [each for each in mysql_streams.root.rglob("*") if each.is_file()]
    assert any("offsets" in file.parts for file in files)
    for text in (*shown, *(file.read_bytes().decode("latin1") for file in files)):
        assert PASSWORD not in text


def test_the_sources_processes_log_no_password(mysql_streams: MySqlStreams, caplog: pytest.LogCaptureFixture) -> None:
    database = mysql_streams.database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9), amount INT)", "INSERT INTO t VALUES (1, 'a', 1)")
    with caplog.at_level(logging.DEBUG):
        life = Life(database)
        start = life.reader.initialOffset()
        end = life.reader.latestOffset(start, ALL)
        assert life.changes(start, end)
        database.run("TRUNCATE t")
        with pytest.raises(WatermarkSourceError) as failed:
            life.changes(end, life.reader.latestOffset(end, ALL))
        life.reader.stop()
    server = database.server
    given = {"hostname": server.host, "port": str(server.port), "username": USER, "password": PASSWORD}
    source = MySqlSource.of(mysql_options.parse({**given, "tables": f"{database.name}.t", "sslKeyPassword": PASSWORD}))
    reported = (caplog.text, str(start), str(end), repr(failed.value), repr(source), repr(vars(life.reader)))
    assert all(PASSWORD not in each for each in reported)
    # What goes to tasks must have it.
    assert PASSWORD.encode() in pickle.dumps(source)
