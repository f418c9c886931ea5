"""Analysed plans as Spark Connect's server prints them: what a query follows, without a server."""

from __future__ import annotations

import pytest

from watermark_source.spark.connect_plan import PlanText
from watermark_source.spark.started_queries import unfollowed

READ = (
    "~StreamingRelationV2 file-log, org.apache.spark.sql.execution.datasources.v2.python.PythonTable@481e7616, [], "
    "[split#134L, value#135L, event_time#136, marker#137], V2SessionCatalog(spark_catalog), default.t"
)
WATERMARK = "~EventTimeWatermark 11648eaa-443b-4b2d-8d06-4344d4ca4569, event_time#136: timestamp, 5 seconds"
OF_WINDOWS = (
    "~Aggregate [window#140-T0ms], [count(1) AS count#139L]",
    "~Project [event_time#136-T0ms AS window#140-T0ms]",
)
NOT_NULL = "~Filter isnotnull(event_time#136-T0ms)"
PLANS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "rows with markers": ((READ,), "marker rows"),
    "windows by WATERMARK": ((*OF_WINDOWS, NOT_NULL, WATERMARK, "~SubqueryAlias t", READ), "highest event time"),
    "markers left out above WATERMARK": (("~Filter isnull(marker#137)", WATERMARK, READ), "highest event time"),
    "rows without a time left out": ((NOT_NULL, READ), None),
    "data rows": (("~Project [value#135L]", "~Filter isnull(marker#137)", READ), None),
    "WATERMARK of data rows": ((*OF_WINDOWS, NOT_NULL, WATERMARK, "~Filter isnull(marker#137)", READ), None),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_watermark_of_sparks_own_is_seen_below_what_leaves_out_rows(plan: str) -> None:
    nodes, text = PLANS[plan]
    tree = "\n".join(f"{'   ' * (depth - 1)}+- {node}" if depth else node for depth, node in enumerate(nodes))
    found = [str(each) for each in unfollowed(PlanText.of(tree).steps())]
    assert len(found) == (text is not None)
    assert text is None or text in found[0]
