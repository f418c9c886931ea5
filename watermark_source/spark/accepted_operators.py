"""Kept markers: what lies between a source and ``follow_watermark`` must keep the marker rows.

Markers are rows whose columns are all null but ``marker``. Most filters drop them, and so do inner joins, ``explode``
or ``dropDuplicates``: then Spark's watermark never advances and no window ever closes, without an error. So the plan is
examined: operators that keep every row are accepted, a filter if it is certainly true for a marker, and nothing else.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from watermark_source.errors import UsageError, shortened
from watermark_source.spark.column_names import CLOCK, EVENT_TIME, KEY, MARKER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

KEEP_EVERY_ROW = frozenset(
    {
        "CollectMetrics",
        "CTERelationDef",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
        "WithCTE",
    }
)
USERS_WORDS = {
    "Aggregate": "an aggregation",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "EventTimeWatermark": "withWatermark",
    "Generate": "explode, or another generator that leaves out rows without elements,",
    "GlobalLimit": "limit",
    "Join": "a join that leaves out rows without a match",
    "LocalLimit": "limit",
    "MapInArrow": "mapInArrow",
    "MapInPandas": "mapInPandas",
    "Sample": "sample",
}
_CONNECT_REMOVES = {
    "Deduplicate": "dropDuplicates",
    "Limit": "limit",
    "NADrop": "dropna",
    "Sample": "sample",
    "WithWatermark": "withWatermark",
}
_CONNECT_KEEPS = re.compile(
    rf"(isnotnull\(|not\(isnull\()`?{MARKER}\b|\b{MARKER}\b\S*\s+is\s+not\s+null\b", re.IGNORECASE
)
"""``marker IS NOT NULL`` within a condition, whether it was written as a text or as a column."""
OUTER_JOINS = {"LeftOuter": (True, False), "RightOuter": (False, True), "FullOuter": (True, True)}
"""Which sides keep all their rows."""


class _Truth(NamedTuple):
    """What a condition certainly is for a marker row; neither, if that depends, or if it is null."""

    true: bool = False
    false: bool = False


def need_kept_markers(df: DataFrame) -> None:
    """Refuse a stream from which an operator may have removed the marker rows.

    Spark Connect shows no analysed plan to its client: there a filter is accepted if ``marker IS NOT NULL`` is part of
    its condition, and what a join or a generator leaves out is not seen.

    Raises:
        UsageError: names the operator, and what to write instead.
    """
    plan = getattr(df, "_jdf", None)
    if plan is not None:
        _check(plan.queryExecution().analyzed())
    elif (connect := getattr(df, "_plan", None)) is not None:
        _check_connect(connect)


def _check(node: Any) -> None:
    streams = [is_stream(child) for child in children_of(node)]
    if not any(streams):
        return
    kind = kind_of(node)
    if kind == "Filter":
        if not _truth(node.condition(), node).true:
            raise _refused(f"the filter {shortened(node.condition().sql())}", node.condition().sql())
    elif kind == "Generate":
        if not node.outer():
            raise _refused(USERS_WORDS[kind])
    elif kind == "Join":
        kept = OUTER_JOINS.get(str(node.joinType()), (False, False))
        if any(streamed and not keeps for streamed, keeps in zip(streams, kept, strict=False)):
            raise _refused(USERS_WORDS[kind])
    elif kind not in KEEP_EVERY_ROW:
        raise _refused(USERS_WORDS.get(kind, f"the operator {kind}"))
    for child in children_of(node):
        _check(child)


def uncast(named: Any) -> Any:
    """Return the column that an expression is, or is a cast of."""
    while kind_of(named) in ("Alias", "Cast"):
        named = named.child()
    return named if kind_of(named) == "AttributeReference" else None


def _refused(what: str, condition: str | None = None) -> UsageError:
    keeps = "" if condition is None else f', or spare the markers: where("{MARKER} IS NOT NULL OR {condition}")'
    return UsageError(
        f"follow_watermark: {what} before it may remove the marker rows, which carry the watermark: no window would "
        f"ever close. Call follow_watermark first, on the result of load(), and continue with its own result{keeps}"
    )


def _truth(condition: Any, at: Any) -> _Truth:
    """Evaluate a filter's condition for a marker, in which every column but ``marker`` is null."""
    kind = kind_of(condition)
    parts = [_truth(part, at) for part in children_of(condition)] if kind in ("And", "Or", "Not") else []
    if kind == "And":
        return _Truth(all(p.true for p in parts), any(p.false for p in parts))
    if kind == "Or":
        return _Truth(any(p.true for p in parts), all(p.false for p in parts))
    if kind == "Not":
        return _Truth(parts[0].false, parts[0].true)
    if kind == "Literal":
        return _Truth(condition.value() is True, condition.value() is False)
    if kind in ("IsNull", "IsNotNull"):
        is_null = _is_null(condition.child(), at)
        return _Truth() if is_null is None else _Truth(is_null is (kind == "IsNull"), is_null is not (kind == "IsNull"))
    return _Truth()


def _is_null(expression: Any, at: Any) -> bool | None:
    """Return whether a value is null in marker rows, ``None`` if that is not certain."""
    if kind_of(expression) == "GetStructField":
        of_marker = _is_null(expression.child(), at) is False
        return False if of_marker and expression.extractFieldName() == "type" else None
    if kind_of(expression) != "AttributeReference":
        return None
    return _traced(expression, at)


def _traced(attribute: Any, node: Any) -> bool | None:
    """Follow a column of a node's input through projections down to the source."""
    defined = next((_defined(attribute, child) for child in children_of(node) if is_stream(child)), None)
    if defined is None:
        return None
    expression, at = defined
    return expression.name() != MARKER if is_leaf(at) else _is_null(expression, at)


def _defined(attribute: Any, node: Any) -> tuple[Any, Any] | None:
    """Return what a column of a node is, in the nearest projection or the source, and that place."""
    wanted = attribute.exprId()
    if is_leaf(node):
        found = [a for a in items(node.output()) if a.exprId().equals(wanted)]
        return (found[0], node) if found and kind_of(node) != "CTERelationRef" else None
    if kind_of(node) == "Project":
        named = next((each for each in items(node.projectList()) if each.exprId().equals(wanted)), None)
        return None if named is None else (named.child() if kind_of(named) == "Alias" else named, node)
    return next((_defined(attribute, child) for child in children_of(node) if is_stream(child)), None)


# The column that users name as event time: the source's own, or one with times of its own.


def has_times_of_its_own(df: DataFrame, name: str, own: Sequence[str]) -> bool:
    """Return whether a column is certainly neither a column in ``own`` of the source, nor a rename or cast of one.

    False under Spark Connect, which exposes no plan, and where the plan cannot be followed.
    """
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return False
    node = plan.queryExecution().analyzed()
    column = next((each for each in items(node.output()) if each.name() == name), None)
    while column is not None:
        defined = _defined(column, node)
        if defined is None:
            return False
        expression, at = defined
        if is_leaf(at):
            return expression.name() not in own
        column, node = uncast(expression), at.child()
    return True


def is_stream(node: Any) -> bool:
    """Return whether a plan's node has the rows of a stream."""
    return bool(node.isStreaming())


def is_leaf(node: Any) -> bool:
    """Return whether a plan's node has no input."""
    return bool(node.children().isEmpty())


def kind_of(node: Any) -> str:
    """Return the name of the class of a plan's node, or of an expression."""
    return str(node.getClass().getSimpleName())


def children_of(node: Any) -> list[Any]:
    """Return the inputs of a plan's node, or the parts of an expression."""
    return list(items(node.children()))


def items(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a sequence of Scala."""
    return (sequence.apply(i) for i in range(sequence.size()))


def _check_connect(plan: Any) -> None:
    while plan is not None:
        kind = type(plan).__name__
        if kind in _CONNECT_REMOVES:
            raise _refused(_CONNECT_REMOVES[kind])
        if kind == "Filter":
            condition = str(plan.filter)
            if not _CONNECT_KEEPS.search(condition):
                raise _refused(f"the filter {shortened(condition)}")
        plan = getattr(plan, "_child", None)


# ``withWatermark`` is checked when it is called. Above follow_watermark it is refused: Spark accepts it, and then a run
# with an end closes nothing, and a live query fails after some batches with advice that makes it worse. In place of
# follow_watermark it is warned of. A DataFrame that is derived from another one is of Spark's own class, so the method
# of that class checks what it is called on. What calls Spark without Python's DataFrame (SQL, Scala) is not checked.

_CHECKED = "_checked_by_watermark_source"


def check_with_watermark(of: type[DataFrame]) -> None:
    """Let ``withWatermark`` of a class of DataFrames check what it is called on.

    It raises ``UsageError`` above ``follow_watermark`` or ``follow_clock``, and logs a warning on a stream of this
    project's sources that nothing follows, unless a filter has separated its markers from its rows, as ``data_rows``
    does. The check itself raises nothing, and of a stream of other sources it reads the columns of the sources alone.
    """
    spark_own = of.withWatermark
    if hasattr(spark_own, _CHECKED):
        return

    @functools.wraps(spark_own)
    def checked(self: DataFrame, eventTime: str, delayThreshold: str) -> DataFrame:  # noqa: N803 (Spark's names)
        follows, unfollowed = _seen_below(self, eventTime)
        if follows:
            raise UsageError(
                f'withWatermark("{eventTime}", "{delayThreshold}"): this stream has a watermark already, by '
                "follow_watermark or follow_clock, and Spark takes no second one: leave it out. To allow for disorder "
                f'of event times, write .option("maxOutOfOrderness", "{delayThreshold}") where the source is read'
            )
        watermarked = spark_own(self, eventTime, delayThreshold)
        if unfollowed is not None:
            _log.warning(
                'withWatermark("%s", "%s"): Spark\'s watermark is then the highest event time of all rows of %s, and '
                "windows drop rows of slower partitions without an error. Write in its place, with a new checkpoint "
                'location: follow_watermark(spark.readStream….option("maxOutOfOrderness", "%s").load()%s). Where the '
                "highest is meant, data_rows(stream).withWatermark(…) logs nothing",
                eventTime, delayThreshold, unfollowed, delayThreshold,
                "" if eventTime == EVENT_TIME else f', "{eventTime}"',
            )  # fmt: skip
        return watermarked

    setattr(checked, _CHECKED, True)
    of.withWatermark = checked  # type: ignore[method-assign]


def _seen_below(df: DataFrame, column: str) -> tuple[bool, str | None]:
    """Return whether a stream follows a watermark of this project, and a source of this project that nothing follows.

    Nothing is seen in a plan that cannot be examined: whether that one is right is Spark's to decide.
    """
    try:
        if CLOCK in column:
            return False, None
        java = getattr(df, "_jdf", None)
        plan = getattr(df, "_plan", None) if java is None else java.queryExecution().analyzed()
        if java is not None and not _reads_from_project(plan):
            return False, None
        if any(CLOCK in name for name in watermark_columns(df)):
            return True, None
        return False, next(_unfollowed_of_connect(plan, df) if java is None else _unfollowed(plan), None)
    except Exception:  # noqa: BLE001 - a check must not stop what Spark accepts
        _log.debug("withWatermark is not checked", exc_info=True)
        return False, None


def _reads_from_project(plan: Any) -> bool:
    leaves = (leaf for leaf in items(plan.collectLeaves()) if is_stream(leaf))
    return any(f'"{KEY}"' in str(leaf.schema().json()) for leaf in leaves)


def _unfollowed(node: Any) -> Iterator[str]:
    """Yield the sources of this project whose rows and markers come up to a node together, below no watermark."""
    kind = kind_of(node)
    if kind == "EventTimeWatermark" or (kind == "Filter" and _is_by_marker(node.condition())):
        return
    if is_leaf(node):
        for each in items(node.output()):
            if each.name() == MARKER and each.metadata().contains(KEY):
                yield str(json.loads(each.metadata().json())[KEY]["source"])
    for child in children_of(node):
        if is_stream(child):
            yield from _unfollowed(child)


def _is_by_marker(condition: Any) -> bool:
    """Return whether a condition, or a part of it that has to be true, reads nothing but the marker."""
    if kind_of(condition) == "And":
        return any(map(_is_by_marker, children_of(condition)))
    read = list(items(condition.references().toSeq()))
    return bool(read) and all(each.metadata().contains(KEY) for each in read)


_OF_SPARK = frozenset({"csv", "delta", "json", "kafka", "orc", "parquet", "rate", "rate-micro-batch", "socket", "text"})
"""Formats that are known, without a request to the server, not to be of this project."""


def _unfollowed_of_connect(node: Any, df: Any) -> Iterator[str]:
    """As ``_unfollowed``, of a plan of Spark Connect's client: the server is asked for the columns of a source."""
    kind = type(node).__name__
    if kind == "WithWatermark" or (kind == "Filter" and re.search(rf"\b{MARKER}\b", str(node.filter))):
        return
    if getattr(node, "_is_streaming", False) and getattr(node, "_format", None) not in _OF_SPARK:
        for field in type(df)(node, df.sparkSession).schema:
            if field.name == MARKER and KEY in field.metadata:
                yield str(field.metadata[KEY]["source"])
    for part in vars(node).values():
        if isinstance(part, _plan_class()):
            yield from _unfollowed_of_connect(part, df)


def watermark_columns(df: DataFrame) -> list[str]:
    """Return the columns on which a stream has watermarks, of Spark's own ``withWatermark`` or of this project."""
    if (java := getattr(df, "_jdf", None)) is not None:
        nodes = _java_nodes(java.queryExecution().logical())
        # A name that is not resolved yet begins with an apostrophe; a resolved one ends with its number.
        return [str(node.eventTime()).removeprefix("'").partition("#")[0] for node in nodes]
    connect = _connect_nodes(getattr(df, "_plan", None))
    return [str(name) for node in connect if (name := getattr(node, "_event_time", None)) is not None]


def _java_nodes(node: Any) -> Iterator[Any]:
    """Yield the watermark nodes of a plan."""
    if node.getClass().getSimpleName() == "EventTimeWatermark":
        yield node
    children = node.children()
    for i in range(children.size()):
        yield from _java_nodes(children.apply(i))


def _connect_nodes(node: Any) -> Iterator[Any]:
    """Yield a plan of Spark Connect's client and all plans that it is made of."""
    if node is None:
        return
    yield node
    for part in vars(node).values():
        if isinstance(part, _plan_class()):
            yield from _connect_nodes(part)


@functools.cache
def _plan_class() -> type:
    from pyspark.sql.connect.plan import LogicalPlan  # noqa: PLC0415 - needs the packages of Connect

    return LogicalPlan
