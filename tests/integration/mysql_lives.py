"""A source's processes without Spark around them, called as Spark calls them: many batches in little time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm import DefaultSource
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_streams import PASSWORD, USER
from watermark_source.spark.stream_reader import AlignedStreamReader

ALL = ReadMaxRows(2**63 - 1)
Change = tuple[int, int, str, int, str, int]
"""Version, number, type, then the row."""


class Life:
    """One life of the source's processes, called as Spark calls them."""

    def __init__(self, database: Database, **options: Any) -> None:
        server = database.server
        given = {
            "hostname": server.host, "port": str(server.port), "username": USER, "password": PASSWORD,
            "tables": f"{database.name}.t", **{name: str(value) for name, value in options.items()},
        }  # fmt: skip
        source = DefaultSource(given)
        self.reader = cast(AlignedStreamReader, source.streamReader(source.schema()))

    def rows(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Read a batch as its tasks do."""
        return data_of(self.batches(start, end))

    def batches(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[pa.RecordBatch]:
        """Read a batch as its tasks do, in columns. Where nothing is new there is none, to Spark either."""
        if start == end:
            return []
        partitions = self.reader.partitions(dict(start), dict(end))
        return [batch for partition in partitions for batch in self.reader.read(partition)]

    def changes(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Change]:
        """Read a batch as its tasks do."""
        return changes_of(self.batches(start, end))


def changes_of(batches: Iterable[pa.RecordBatch]) -> list[Change]:
    """Return the data rows of a batch."""
    return [
        (row["_commit_version"], row["_change_number"], row["_change_type"], row["id"], row["name"], row["amount"])
        for row in data_of(batches)
    ]


def data_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows of a batch without its markers."""
    return [row for batch in batches for row in batch.to_pylist() if row["marker"] is None]
