"""What a query over a table of a server has delivered by its end, beside what the server holds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.integration.mysql_binlog import Database
from tests.spark.queries import Streams
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.state import SourceState

CODEC = OffsetCodec(source="mysql-cdc-wm", name="mysql-cdc-wm")


def fill(database: Database, table: str = "t", *, rows: int) -> None:
    """Make a table, with every second key from 0 on."""
    values = ", ".join(f"({2 * i}, 'n{i}', {i})" for i in range(rows))
    database.run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)",
        f"INSERT INTO {table} VALUES {values}",
    )


def held(database: Database, table: str = "t") -> dict[int, tuple[Any, ...]]:
    """Return what a table holds, by key."""
    return {row[0]: row for row in database.run(f"SELECT id, name, amount FROM {table}")}


@dataclass(frozen=True)
class Delivered:
    """A file sink and its checkpoint."""

    rows: list[tuple[Any, ...]]
    """Version, number, type, id, name, amount; in order."""
    markers: list[int]
    """Watermarks, in order."""
    states: list[SourceState]
    """At the end of each batch."""

    @classmethod
    def of(cls, streams: Streams, name: str) -> Delivered:
        """Read what exists under a name."""
        found = streams.result(name)
        order = ("_commit_version", "_change_number")
        rows = found.where("marker IS NULL").select(*order, "_change_type", "id", "name", "amount").orderBy(*order)
        marked = found.selectExpr("unix_millis(marker.watermark) AS w").where("marker.type = 'watermark'")
        return cls(
            [tuple(row) for row in rows.collect()],
            sorted(row.w for row in marked.collect()),
            [CODEC.decode(offset) for offset in streams.offsets(name)],
        )

    @property
    def places(self) -> list[tuple[int, int]]:
        """Version and number of every row of the binlog."""
        return [(row[0], row[1]) for row in self.rows if row[2] != "reread" and (row[1] or row[2] != "insert")]

    @property
    def reread(self) -> list[int]:
        """The keys of rows that were read again."""
        return [row[3] for row in self.rows if row[2] == "reread"]

    @property
    def watermarks(self) -> list[int]:
        """The recorded ones, batch by batch."""
        return [w for state in self.states if (w := state.watermark) is not None]

    @property
    def due_markers(self) -> list[int]:
        """The watermarks that must have come out: one of every batch that was sent."""
        sent = [self.states[0], *(after for before, after in pairwise(self.states) if after != before)]
        return [w for state in sent if (w := state.watermark) is not None]
