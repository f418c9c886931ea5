"""DataFrames in functions of declarative pipelines, which Spark does not analyse before it knows the whole pipeline."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

_REFUSED = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"


def known_columns(df: DataFrame) -> list[str] | None:
    """Return the DataFrame's columns; ``None`` where a pipeline is being defined, and nobody may ask."""
    try:
        return df.columns
    except PySparkException as refused:
        if refused.getCondition() == _REFUSED:
            return None
        raise
