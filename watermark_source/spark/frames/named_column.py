"""Columns of a DataFrame by the names that users write."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from watermark_source.errors import UsageError


def quoted(name: str) -> Column:
    """Return a column by its exact name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def spelling(df: DataFrame, name: str, caller: str) -> str:
    """Return the column's own spelling; Spark ignores case unless ``spark.sql.caseSensitive`` is set.

    Raises:
        UsageError: there is no such column, or more than one; ``caller`` is what the user called.
    """
    if name in df.columns:
        return name
    found = [] if is_case_sensitive(df) else [c for c in df.columns if c.lower() == name.lower()]
    if len(found) != 1:
        raise UsageError(f"{caller}: there is no column {name!r}; the columns are {df.columns}")
    return found[0]


def is_case_sensitive(df: DataFrame) -> bool:
    """Return whether names that differ in case alone are different names."""
    return df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
