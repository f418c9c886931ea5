"""The plan of a DataFrame, in the one form that checks read: of Spark Classic, or of Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watermark_source.spark.classic_plan import steps_of_plan
from watermark_source.spark.plan_steps import Step
from watermark_source.supported_spark import analyzed_plan, spark_internals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@spark_internals()
def steps_of(df: DataFrame) -> Step:
    """Return the plan of a DataFrame; Spark Connect's server is asked for it."""
    if (plan := analyzed_plan(df)) is not None:
        return steps_of_plan(plan)
    from watermark_source.spark.connect_plan import steps_of_connect  # noqa: PLC0415 - needs the packages of Connect

    return steps_of_connect(df)
