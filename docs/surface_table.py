"""The ways to write a stream of these sources, and what becomes of it: the table of docs/surfaces.md.

``tests/spark/test_surfaces.py`` and ``tests/integration/test_surfaces.py`` write each, and hold this table to what they
see.
"""

from __future__ import annotations

from collections.abc import Mapping

USES = ("follow_watermark", "data_rows", "neither", "withWatermark", "a column of one's own")
EXACT, REFUSED, WARNED = "exact", "refused", "warned"
SURFACES: Mapping[str, Mapping[str, str]] = {
    "DataFrame": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "SQL over a view of the DataFrame": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "SQL over a table (`CREATE TABLE … USING`)": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "`readStream.table`": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "SQL with `WATERMARK` over a view of the DataFrame": dict(
        zip(USES, (REFUSED, "the highest event time is asked for", WARNED, REFUSED, WARNED), strict=True)
    ),
    "union of two sources": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "union of two sources, before the call": dict(zip(USES, (REFUSED, EXACT, WARNED, WARNED, REFUSED), strict=True)),
    "join of two sources": dict(zip(USES, (EXACT, EXACT, EXACT, WARNED, WARNED), strict=True)),
    "`foreachBatch`": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "Spark Connect": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "SQL through Spark Connect": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "pipeline in Python": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
    "pipeline in SQL": dict(zip(USES, (EXACT, EXACT, WARNED, WARNED, WARNED), strict=True)),
}
"""What becomes of a stream, or why there is nothing to write."""
SOURCES = ("file log", "Kafka", "MySQL")
"""What each is read from."""
OTHERWISE: Mapping[tuple[str, str, str], str] = {}
"""What becomes of it with one source that differs: by surface, use and source."""


def cells(surface: str, source: str) -> Mapping[str, str]:
    """Return what becomes of the uses of a surface with one of ``SOURCES``."""
    return {use: OTHERWISE.get((surface, use, source), cell) for use, cell in SURFACES[surface].items()}


_HEAD = """\
<!-- Written by docs/generate.py from docs/surface_table.py. -->
# Ways to write a stream

A source sends data rows, and marker rows, which carry its watermark and are null in all other columns.
`follow_watermark(stream)` turns them into Spark's watermark, `data_rows(stream)` removes them. When a query starts, the
source checks which of these it uses. Tests try each cell with three sources: files (`examples/file_log`), Kafka with
`eventTimeColumn`, and MySQL with a snapshot and changes. One word in a cell means that all three behave the same:

"""
_TAIL = """\

- *exact*: the result is that of a batch over the same rows.
- *refused*: an error that states what to write.
- *warned*: a log line that states what to write. Spark's own watermark drops rows of slower partitions; with neither,
  marker rows appear as rows of nulls. The source's watermark does not apply to times in a column of your own.

In SQL, `data_rows` is `WHERE marker IS NULL` and `withWatermark` is `WATERMARK`. For `follow_watermark` create a view
in Python; SQL over it needs no `WATERMARK`:

```python
follow_watermark(spark.readStream.table("rides")).createOrReplaceTempView("followed")
spark.sql("SELECT window(event_time, '1 minute'), count(*) FROM followed GROUP BY 1")
```

A table does not store a password: write `FROM STREAM rides WITH ('password' = '…')`, or
`spark.readStream.option("password", …).table("rides")`. `sourceName` may be given there, too; options on which the
table's columns depend, and what these state of time, belong to its `OPTIONS`: `watermarkStrategy`, `alignmentGroup`,
`whenCaughtUp`, `includeLate`.

This check runs in Python programs that import `watermark_source`; for a pipeline, where its functions are. Otherwise
(SQL of a pipeline, Scala, no import) the query's first task with a watermark always warns, unless the option
`includeMarkers` is set. In a pipeline write `follow_watermark(spark.readStream.format(…).load())`: tables, filters and
SQL before the call are refused.
"""


def surfaces_page() -> str:
    """Return the whole page."""
    lines = [f"| | {' | '.join(f'`{use}`' if use.isidentifier() and use != 'neither' else use for use in USES)} |"]
    lines += ["|---" * (len(USES) + 1) + "|"]
    lines += [f"| {surface} | {' | '.join(_shown(surface, use) for use in USES)} |" for surface in SURFACES]
    return _HEAD + "".join(f"{line}\n" for line in lines) + _TAIL


def _shown(surface: str, use: str) -> str:
    others = {source: found for source in SOURCES if (found := OTHERWISE.get((surface, use, source))) is not None}
    return "; ".join([SURFACES[surface][use], *(f"{source}: {found}" for source, found in others.items())])
