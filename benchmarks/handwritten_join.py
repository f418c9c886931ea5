"""What one writes by hand in place of ``temporal_join``: the latest row of each key, and nobody waits.

With Spark's API of rows: that of pandas frames took nine times as long with 20 rows of a key in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

OUTPUT = "user_id INT, item_id INT, at TIMESTAMP, name STRING"


class Latest(StatefulProcessor):
    """One row after the other, one key after the other."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._latest = handle.getValueState("latest", "name STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        asked = []
        changed = False
        name = None
        for row in rows:
            if row.is_probe:
                asked.append(row)
            else:
                name, changed = row.name, True
        if changed:
            self._latest.update((name,))
        elif asked:
            known = self._latest.get()
            name = None if known is None else known[0]
        for row in asked:
            yield Row(user_id=key[0], item_id=row.item_id, at=row.at, name=name)

    def close(self) -> None:
        pass


def _tagged(probe: DataFrame, build: DataFrame) -> DataFrame:
    left = probe.select(
        "user_id", F.lit(True).alias("is_probe"), "item_id", "at", F.lit(None).cast("string").alias("name")
    )
    nothing = (F.lit(0).alias("item_id"), F.lit(None).cast("timestamp").alias("at"))
    return left.union(build.select("user_id", F.lit(False).alias("is_probe"), *nothing, "name"))


def by_row(probe: DataFrame, build: DataFrame) -> DataFrame:
    """Join with Spark's API of rows."""
    return _tagged(probe, build).groupBy("user_id").transformWithState(Latest(), OUTPUT, "append", "none")
