"""Sources that are added to a query and removed from it under its checkpoint: Spark's source evolution.

Spark forgets the position of a source that a query no longer has. Where that source comes back under its name, Spark
begins it again, by its ``startingOffsets``: rows twice, or left out, without a word. Earlier entries of the offset log
still have it, a hundred batches by default (``spark.sql.streaming.minBatchesToRetain``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkException

from watermark_source.errors import UsageError, listed
from watermark_source.planning.watermark import Millis, watermark_text
from watermark_source.supported_spark import analyzed_plan, scala_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_log = logging.getLogger(__name__)

_EVOLVES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_LOCATION = "checkpointLocation"
# Version 2 of Spark's offset log has lines "name:offset"; an offset of this project has its format and its version.
_ENTRY = {
    "batch": "TRY_CAST(_metadata.file_name AS BIGINT)",
    "watermark": r"""CAST(nullif(regexp_extract(value, r'"batchWatermarkMs":(\d+)', 1), '') AS BIGINT)""",
    "names": r"regexp_extract_all(value, r'(?m)^(\w+):', 1)",
    "own": r"""regexp_extract_all(value, r'(?m)^(\w+):\{.*"source": ".*"v": \d', 1)""",
}


def evolves(spark: SparkSession) -> bool:
    """Return whether each source of a query must have a name (``readStream.name``)."""
    return spark.conf.get(_EVOLVES, "false") == "true"


def need_new_names(writer: Any, df: DataFrame, given: Mapping[str, Any]) -> None:
    """Refuse a source that comes back under the name that it had before it was removed; warn of one that is late.

    ``given``: the options with which the query is started, beside those of its writer.

    Raises:
        UsageError: a source is in the offset log of the query's checkpoint, not in its last entry, and is back.
    """
    if not evolves(df.sparkSession):
        return
    try:
        if not (location := given.get(_LOCATION) or _location(writer)):
            return
        logged, present = _logged(df.sparkSession, location), set(_names(df))
    except Exception as error:  # noqa: BLE001 - a check must not stop what Spark accepts
        # Without that path there is no offset log yet: the query is new.
        if not (isinstance(error, PySparkException) and error.getCondition() == "PATH_NOT_FOUND"):
            _log.warning(
                "the offset log of this query cannot be examined (%s): a source that was removed, and is back under "
                "its name, starts over, with rows twice or left out", type(error).__name__, exc_info=True,
            )  # fmt: skip
        return
    if not logged:
        return
    last = max(logged, key=lambda entry: entry.batch)
    removed = {name for entry in logged for name in entry.own}.difference(last.names)
    if back := sorted(removed & present):
        raise UsageError(
            f"{listed(back)} was removed from this query, and Spark has forgotten up to where it was read: under the "
            "same name it would start over, with rows twice or left out. Give it another name, and options that say "
            f'where it begins: readStream.name("{back[0]}_2")'
        )
    if (new := sorted(present.difference(last.names))) and last.watermark:
        _log.warning(
            "%s is new in this query, whose watermark is %s: windows, joins and deduplication drop its rows whose "
            "event time is not later. Where those are wanted, start with a new checkpoint location",
            listed(new), watermark_text(Millis(last.watermark)),
        )  # fmt: skip


def _location(writer: Any) -> str | None:
    """Return the option of a writer, which shows its options nowhere else; ``None`` if it has none."""
    if hasattr(writer, "_jwrite"):
        options = writer._jwrite.extraOptions()  # noqa: SLF001
        return str(options.apply(_LOCATION)) if options.contains(_LOCATION) else None
    # To index the map of a message would add the key to it.
    return cast("str | None", writer._write_proto.options.get(_LOCATION))  # noqa: SLF001


def _logged(spark: SparkSession, location: str) -> list[Row]:
    """Return the entries of an offset log: batch, watermark, names of its sources, and of those of this project."""
    files = spark.read.text(f"{location}/offsets", wholetext=True, pathGlobFilter="[0-9]*")
    found = (f"{of} AS {name}" for name, of in _ENTRY.items())
    return files.selectExpr(*found).where("batch IS NOT NULL").collect()


def _names(df: DataFrame) -> list[str]:
    """Return the names of the sources of a query."""
    if (plan := analyzed_plan(df)) is not None:
        leaves = scala_items(plan.collectLeaves())
        return [str(leaf.sourceIdentifyingName().name()) for leaf in leaves if leaf.isStreaming()]
    of_connect: Any = df
    sent = of_connect._plan.to_proto(of_connect.sparkSession.client)  # noqa: SLF001 - as above
    return re.findall(r'source_name: "(\w+)"', str(sent))
