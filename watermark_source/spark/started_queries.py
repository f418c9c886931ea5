"""What is checked when a query starts: whether it follows the watermark of each of its sources.

A source cannot see how its stream is used. Where nothing follows its watermark, Spark's own ``withWatermark``, or
``WATERMARK`` in SQL, drops rows of slower splits; and where nothing separates its marker rows, they reach the sink as
rows of nulls; and rows without a watermark that are united with others obey that of the others. All are warned of, once
a query, and a second watermark above ours is refused.

The plan is examined where a query of Python starts, however it was written: ``DataStreamWriter`` of Classic and Connect
is patched, and the registration of a pipeline's flows. A query that was examined has a setting that its tasks see.
The task that sends markers warns where it is missing (``warn_of_unexamined``): in a program that did not import this
package, of Scala, or in SQL of a pipeline.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from watermark_source.errors import UsageError
from watermark_source.spark.column_names import CLOCK, EVENT_TIME
from watermark_source.spark.plan_steps import KEEP_STATE, Step, Watermarked, in_place
from watermark_source.spark.query_plan import steps_of
from watermark_source.spark.session_setting import session_setting
from watermark_source.spark.source_evolution import need_new_names
from watermark_source.spark.unexamined_query import EXAMINED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

_CHECKED = "_checked_by_watermark_source"
_REGISTRY = "SparkConnectGraphElementRegistry"


def check_starts(module: ModuleType) -> None:
    """Let what a module of Spark starts queries with, ``DataStreamWriter`` or a pipeline's registry, check them."""
    if hasattr(module, _REGISTRY):
        _patch(getattr(module, _REGISTRY), "register_flow", _with_checked_flow)
    else:
        for name in ("start", "toTable"):
            _patch(module.DataStreamWriter, name, _with_checked_query)


def _patch(of: type, name: str, decorate: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    spark_own = getattr(of, name)
    if not hasattr(spark_own, _CHECKED):
        checked = functools.wraps(spark_own)(decorate(spark_own))
        setattr(checked, _CHECKED, True)
        setattr(of, name, checked)


def _with_checked_query(start: Callable[..., Any]) -> Callable[..., Any]:
    def checked(writer: Any, *args: Any, **named: Any) -> Any:
        df = _written_by(writer)
        if not examine(df):
            return start(writer, *args, **named)
        need_new_names(writer, df, named)
        # A query keeps the settings that its session has when it starts; those that nothing examines have it not.
        with session_setting(df, EXAMINED, "true"):
            return start(writer, *args, **named)

    return checked


def _written_by(writer: Any) -> DataFrame:
    if (df := getattr(writer, "_df", None)) is not None:
        return cast("DataFrame", df)
    from pyspark.sql.connect.dataframe import DataFrame as OfConnect  # noqa: PLC0415 - a writer of Connect

    return OfConnect(writer._write_stream._child, writer._session)  # noqa: SLF001 - a writer shows its plan nowhere else


def _with_checked_flow(register: Callable[..., Any]) -> Callable[..., Any]:
    def checked(registry: Any, flow: Any) -> Any:
        from watermark_source.spark.connect_plan import steps_sent  # noqa: PLC0415 - needs the packages of Connect

        settings = dict(flow.spark_conf)

        def rows() -> DataFrame:
            df: DataFrame = flow.func()
            if examine(df, steps_sent):
                settings[EXAMINED] = "true"
            return df

        # The registry asks for the rows before it sends the settings.
        return register(registry, replace(flow, func=rows, spark_conf=settings))

    return checked


def examine(df: DataFrame, read: Callable[[DataFrame], Step] | None = None) -> bool:
    """Warn of sources of this project that a query does not follow.

    Returns:
        Whether it may have any, and all that nothing follows were seen. What cannot be examined is left to Spark.

    Raises:
        UsageError: a watermark of Spark's own is above ``follow_watermark`` or ``follow_clock``.
    """
    try:
        examined = examine_plan((read or steps_of)(df))
    except UsageError:
        raise
    except Exception:  # noqa: BLE001 - a check must not stop what Spark accepts
        _log.debug("the plan of a query is not examined", exc_info=True)
        return False
    for each in examined.warnings:
        _log.warning("%s", each)
    return examined.is_whole


class Unfollowed(NamedTuple):
    """A source of a query that does not follow its watermark."""

    source: str
    watermarked: Watermarked | None
    """Spark's own watermark of its rows."""

    def __str__(self) -> str:
        if self.watermarked is None:
            return (
                f"the marker rows of {self.source}, which carry its watermark and are null in every other column, are "
                "among the rows that this query writes or counts. Write data_rows(stream) in place of the stream for "
                "its rows alone, or follow_watermark(stream), whose windows, joins and deduplication close by the "
                'source\'s watermark; where markers are wanted, .option("includeMarkers", "true")'
            )
        from watermark_source.status_model.watermark_warnings import followed_in_sql  # noqa: PLC0415 - warnings alone

        column, delay = self.watermarked
        named = "" if column == EVENT_TIME else f', "{column}"'
        return (
            f'withWatermark("{column}", "{delay}"), or WATERMARK in SQL: Spark\'s watermark is then the highest event '
            f"time of all rows of {self.source}, and windows drop rows of slower partitions without an error. Write in "
            "its place, with a new checkpoint location: "
            f'follow_watermark(spark.readStream….option("maxOutOfOrderness", "{delay}").load(){named}); '
            f"{followed_in_sql(named)}. Where the highest is meant, data_rows(stream).withWatermark(…) logs nothing"
        )


class United(NamedTuple):
    """A source without a watermark whose rows are united with those of a stream that has one."""

    source: str

    def __str__(self) -> str:
        return (
            f"the rows of {self.source} have no watermark where they are united with a stream that has one: windows "
            "and deduplication above the union drop those behind the other's watermark without an error. Write "
            "follow_watermark(stream) for each stream of the union, with a new checkpoint location"
        )


class Examined(NamedTuple):
    """The facts about a query by its plan."""

    warnings: tuple[Unfollowed | United, ...]
    """Sources that it does not follow, each once."""
    is_whole: bool
    """Whether it may have sources of this project, and all that nothing follows were seen."""


def examine_plan(plan: Step) -> Examined:
    """Return the facts about a query by its plan; raises what ``examine`` raises."""
    placed = in_place(plan)
    reached = tuple(_unfollowed_reads(placed))
    unfollowed = (
        Unfollowed(step.source.name, above)
        for step, above in reached
        if step.source is not None and not (above is None and step.source.sends_markers_as_asked)
    )
    may_have = any(step.source is not None or step.is_opaque for step in placed.all())
    return Examined(
        warnings=tuple(dict.fromkeys((*unfollowed, *_without_watermark(placed)))),
        is_whole=may_have and not any(step.is_opaque for step, _ in reached),
    )


def _unfollowed_reads(
    step: Step, above: Watermarked | None = None, *, left_out: bool = False
) -> Iterator[tuple[Step, Watermarked | None]]:
    """Yield where a plan reads rows that reach its end with their markers, or Spark's own watermark between both.

    ``left_out``: whether an operator further up leaves out the markers.
    """
    if step.watermarked is not None:
        if CLOCK in step.watermarked.column:
            return
        if any(CLOCK in each.watermarked.column for each in step.all() if each.watermarked is not None):
            raise _second(step.watermarked)
        above = above or step.watermarked
    if above is not None and step.reads_marker_alone:
        # The user has separated the markers first.
        return
    left_out = left_out or step.reads_marker_alone or _drops_markers(step)
    if not step.children and (above is not None or not left_out):
        yield step, above
    for child in step.streams:
        yield from _unfollowed_reads(child, above, left_out=left_out)


def _without_watermark(step: Step, *, keeps_state: bool = False) -> Iterator[United]:
    """Yield sources without a watermark below a union that has the event time of its first input, which has one.

    ``keeps_state``: whether an operator further up drops rows behind a watermark.
    """
    inputs = tuple(step.streams)
    keeps_state = keeps_state or step.kind in KEEP_STATE or (step.kind == "Join" and len(inputs) > 1)
    if step.kind == "Union" and keeps_state and _has_watermark(inputs[0]):
        bare = (each for each in inputs[1:] if not _has_watermark(each))
        yield from (United(read.source.name) for each in bare for read in each.all() if read.source is not None)
    for child in inputs:
        yield from _without_watermark(child, keeps_state=keeps_state)


def _has_watermark(step: Step) -> bool:
    return any(each.watermarked is not None for each in step.all())


def _drops_markers(step: Step) -> bool:
    """Return whether an operator certainly leaves out the marker rows, as it does other rows without a value."""
    is_condition = step.kind == "Filter" or (step.kind == "Join" and step.join_type in ("Inner", "LeftSemi"))
    return is_condition and True not in step.outcomes


def _second(watermarked: Watermarked) -> UsageError:
    column, delay = watermarked
    return UsageError(
        f'withWatermark("{column}", "{delay}"), or WATERMARK in SQL: this stream has a watermark already, by '
        "follow_watermark or follow_clock, and Spark takes no second one: leave it out. To allow for disorder of event "
        f'times, write .option("maxOutOfOrderness", "{delay}") where the source is read'
    )
