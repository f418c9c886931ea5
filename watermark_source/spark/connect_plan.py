"""The plan of Spark Connect: the text of the analysed plan, for which the server is asked.

In a function of a declarative pipeline the server answers no question about a plan. There only what the client has sent
is known: which operators, and of a source its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.connect.plan import LogicalPlan

from watermark_source.installation import format_packages
from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.plan_steps import Source, Step, Watermarked
from watermark_source.spark.plan_text import MARKERS_ASKED, PlanText
from watermark_source.spark.session_setting import session_setting

_MOST_FIELDS, _LONGEST = "spark.sql.debug.maxToStringFields", "spark.sql.maxPlanStringLength"
"""How many columns of a node Spark prints, 25 unless it is set; and how many characters of a plan."""
_ALL = str(2**31 - 16)
_IS_CUT = re.compile(r" more (fields|characters)|^Truncated plan of ")


def steps_of_connect(df: DataFrame) -> Step:
    """Return the plan of a DataFrame of Spark Connect, as the server has analysed it.

    Of many columns, or a long plan, a server that takes no setting shows some: what the client has sent is known then.
    """
    explained: Callable[..., str] = cast(Any, df)._explain_string  # noqa: SLF001 - ``explain`` prints it
    text = explained(extended=True)
    if _IS_CUT.search(text):
        with session_setting(df, _MOST_FIELDS, _ALL), session_setting(df, _LONGEST, _ALL):
            text = explained(extended=True)
    return steps_sent(df) if _IS_CUT.search(text) else PlanText.of(text).steps()


# What the client has sent.


_OF_SPARK = frozenset({"csv", "delta", "json", "kafka", "orc", "parquet", "rate", "rate-micro-batch", "socket", "text"})
"""Formats that are known, without a look at others, not to be of this project."""


def steps_sent(df: DataFrame) -> Step:
    """Return the plan of a DataFrame in a function of a pipeline, as the client sends it."""
    return _sent(cast(Any, df)._plan)  # noqa: SLF001 - Spark shows a client's plan nowhere else


def _sent(plan: LogicalPlan) -> Step:
    kind = type(plan).__name__
    # The first input of a join has two names.
    parts = [part for name, part in vars(plan).items() if isinstance(part, LogicalPlan) and name != "left"]
    children = tuple(map(_sent, parts))
    if not children:
        return _read_by_client(plan, kind)
    facts: dict[str, Any] = {}
    if kind == "Filter":
        condition = str(plan.filter)  # type: ignore[attr-defined]
        facts = {"text": condition, "reads_marker_alone": re.search(rf"\b{MARKER}\b", condition) is not None}
    elif kind == "WithWatermark":
        facts = {"watermarked": Watermarked(plan._event_time, plan._delay_threshold)}  # type: ignore[attr-defined] # noqa: SLF001
    return Step(kind=kind, is_stream=any(child.is_stream for child in children), children=children, **facts)


def _read_by_client(plan: Any, kind: str) -> Step:
    name = getattr(plan, "_format", None)
    streams = bool(getattr(plan, "_is_streaming", False)) or kind == "SQL"
    if not streams or name in _OF_SPARK:
        return Step(kind=kind, is_stream=streams)
    if name is None or not _is_own_format(name):
        return Step(kind=kind, is_stream=True, is_opaque=True)
    asked = MARKERS_ASKED.lower() in {option.lower() for option in plan._options or ()}  # noqa: SLF001 - as above
    return Step(kind=kind, is_stream=True, source=Source(name, asked))


def _is_own_format(name: str) -> bool:
    from watermark_source.spark.data_source import AlignedDataSource  # noqa: PLC0415 - pipelines alone need it

    found = (getattr(import_module(package), "DefaultSource", None) for package in format_packages())
    return any(isinstance(each, type) and issubclass(each, AlignedDataSource) and each.name() == name for each in found)


def may_have_times_of_its_own(df: DataFrame, name: str) -> bool:
    """Return whether a column of a pipeline's stream may be another than the source's event time."""
    return name.lower() != EVENT_TIME or _makes_column(cast(Any, df)._plan, name)  # noqa: SLF001 - as above


def _makes_column(plan: Any, name: str) -> bool:
    made = [*getattr(plan, "_columnNames", ()), *(str(column) for column in getattr(plan, "_columns", ()))]
    if any(re.search(rf"(^| AS ){re.escape(name)}\b", each, re.IGNORECASE) for each in made):
        return True
    return any(_makes_column(part, name) for part in vars(plan).values() if isinstance(part, LogicalPlan))
