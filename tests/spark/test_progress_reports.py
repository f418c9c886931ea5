"""Progress reports of real tasks: what is missing is looked at again, what is no report leaves the query alone."""

from __future__ import annotations

import socket
import struct

import psutil
import pytest
from pyspark.sql import DataFrame

from tests.spark.processes import newest_runner
from tests.spark.queries import START, Rows, Streams

pytestmark = pytest.mark.spark

MANY: Rows = {0: [(n / 1_000, n) for n in range(400_000)]}


def listening_port(runner: psutil.Process) -> int:
    (port,) = [c.laddr.port for c in runner.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return port


def test_a_batch_that_is_not_read_to_its_end_still_gives_its_whole_watermark(streams: Streams) -> None:
    streams.write(MANY)

    def take_one(batch: DataFrame, number: int) -> None:
        batch.limit(1).collect()

    writer = streams.load().writeStream.foreachBatch(take_one).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(streams.checkpoint("limit"))).start()
    streams.started.append(query)
    query.awaitTermination(240)
    assert query.exception() is None
    assert streams.offsets("limit")[-1]["wm"] == START + 399_999 - 1


def test_what_is_no_report_leaves_the_query_alone(streams: Streams) -> None:
    streams.write({0: [(0, 1)]})
    query = streams.start_file(streams.load(), "attacked")
    query.processAllAvailable()
    runner = newest_runner(streams.spark)
    port = listening_port(runner)
    held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(40)]
    try:
        held[0].sendall(b"GET / HTTP/1.1\r\n\r\n" + b"\0" * 100)
        held[1].sendall(struct.pack(">I", 2**31) + b"\0" * 64)
        held[2].sendall(b"\xff" * 4_096)
        held[3].shutdown(socket.SHUT_WR)
        for second in (10, 20):
            streams.write({0: [(second, second)]})
            query.processAllAvailable()
        memory = runner.memory_info().rss
    finally:
        for connection in held:
            connection.close()
    streams.write({0: [(30, 30)]})
    query.processAllAvailable()
    query.stop()
    streams.run(streams.load(), "attacked")
    assert streams.offsets("attacked")[-1]["wm"] == START + 29_999
    assert sorted(r.value for r in streams.result("attacked").where("marker IS NULL").collect()) == [1, 10, 20, 30]
    assert memory < 500 * 2**20


def test_reports_are_received_at_the_drivers_address_alone(streams: Streams) -> None:
    streams.write({0: [(0, 1)]})
    query = streams.start_file(streams.load(), "bound")
    query.processAllAvailable()
    runner = newest_runner(streams.spark)
    assert streams.spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert {c.laddr.ip for c in runner.net_connections("tcp") if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    query.stop()


def test_a_runner_no_one_can_reach_looks_at_every_range_itself(streams: Streams) -> None:
    streams.write({0: [(0, 1)], 1: [(5, 2)]})
    # An address of this machine at which nothing listens.
    query = streams.start_file(streams.load(reportAddress="127.0.0.99"), "unreached")
    query.processAllAvailable()
    streams.write({0: [(10, 3)], 1: [(20, 4)]})
    query.processAllAvailable()
    query.stop()
    streams.run(streams.load(), "unreached")
    assert streams.offsets("unreached")[-1]["wm"] == START + 9_999
