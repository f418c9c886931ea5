"""Kept markers: what lies between a source and ``follow_watermark`` must keep the marker rows.

Markers are rows whose columns are all null but ``marker``. Most filters drop them, and so do inner joins, ``explode``
or ``dropDuplicates``: then Spark's watermark never advances and no window ever closes, without an error. So the plan is
examined: operators that keep every row are accepted, a filter if it is certainly true for a marker, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from watermark_source.errors import UsageError, shortened
from watermark_source.spark.column_names import MARKER
from watermark_source.spark.plan_columns import time_of
from watermark_source.spark.plan_steps import TRUE, Step

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
_KEEP_EVERY_ROW_OF_CLIENT = frozenset(
    {"Drop", "Hint", "ToDF", "ToSchema", "WithColumns", "WithColumnsRenamed", *KEEP_EVERY_ROW}
)
"""And the operators that a client of Spark Connect has sent, in a pipeline."""
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
_CLIENTS_WORDS = {
    "Limit": "limit",
    "NADrop": "dropna",
    "Read": "a table or view, which a pipeline shows by its name alone, and what it may leave out",
    "SQL": "a query in SQL, which a pipeline shows as its text alone, and what it may leave out",
    "WithWatermark": "withWatermark",
}
OUTER_JOINS = {"LeftOuter": (True, False), "RightOuter": (False, True), "FullOuter": (True, True)}
"""Which sides keep all their rows."""


def need_kept_markers(plan: Step) -> None:
    """Refuse a stream of several sources, and one from which an operator may have removed the marker rows.

    Raises:
        UsageError: names the operator, and what to write instead.
    """
    # Of several sources below one watermark Spark would take the highest of their markers.
    count = len(plan.sources)
    if count > 1:
        raise UsageError(
            f"follow_watermark: the stream is made of {count} sources, and each has a watermark of its own. Call "
            "it on each of them, then unite or join what it returns: follow_watermark(a).union(follow_watermark(b))"
        )
    _check(plan)


def _check(step: Step) -> None:
    if step.kind == "Filter":
        if step.outcomes != TRUE:
            raise _refused(f"the filter {shortened(step.text)}", step.text)
    elif step.kind == "Generate":
        if not step.keeps_left_out:
            raise _refused(USERS_WORDS[step.kind])
    elif step.kind == "Join":
        kept = OUTER_JOINS.get(step.join_type, (False, False))
        if any(child.is_stream and not keeps for child, keeps in zip(step.children, kept, strict=False)):
            raise _refused(USERS_WORDS[step.kind])
    elif step.kind in _CLIENTS_WORDS or (step.children and step.kind not in _KEEP_EVERY_ROW_OF_CLIENT):
        raise _refused(USERS_WORDS.get(step.kind) or _CLIENTS_WORDS.get(step.kind) or f"the operator {step.kind}")
    for child in step.streams:
        _check(child)


def _refused(what: str, condition: str | None = None) -> UsageError:
    keeps = "" if condition is None else f', or spare the markers: where("{MARKER} IS NOT NULL OR {condition}")'
    return UsageError(
        f"follow_watermark: {what} before it may remove the marker rows, which carry the watermark: no window would "
        f"ever close. Call follow_watermark first, on the result of load(), and continue with its own result{keeps}"
    )


# The column that users name as event time: the source's own, or one with times of its own.


def has_times_of_its_own(plan: Step, name: str, own: Sequence[str]) -> bool:
    """Return whether a column is certainly neither a column in ``own`` of the source, nor one of these moved or cast.

    A time that is moved by an interval, the same for all rows, keeps their order. False where the plan cannot be
    followed.
    """
    made = {number: text for step in plan.all() for number, text in step.made.items()}
    read = {column.number: column.name for step in plan.sources for column in step.output}
    number = next((column.number for column in plan.output if column.name == name), None)
    if number is None:
        return False
    while number is not None and number not in read:
        if number not in made:
            return False
        number = time_of(made[number])
    return number is None or read[number] not in own
