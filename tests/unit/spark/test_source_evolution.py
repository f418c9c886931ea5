"""Where the checkpoint of a query is, by a writer of Spark Connect."""

from __future__ import annotations

from types import SimpleNamespace

from pyspark.sql.connect.proto import WriteStreamOperationStart

from watermark_source.spark.source_evolution import _location


def test_a_writer_of_connect_is_asked_for_its_checkpoint_and_keeps_the_options_it_had() -> None:
    writer = SimpleNamespace(_write_proto=WriteStreamOperationStart())
    assert not _location(writer)
    assert dict(writer._write_proto.options) == {}
    writer._write_proto.options["checkpointLocation"] = "/data/orders"
    assert _location(writer) == "/data/orders"
