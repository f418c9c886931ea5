"""The analysed plan of Spark Classic, whose nodes are asked over Py4J."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from watermark_source.spark.column_names import KEY, MARKER
from watermark_source.spark.plan_columns import numbers_in, projected
from watermark_source.spark.plan_steps import (
    ANY,
    DEFINED,
    FALSE,
    NULL,
    REPRESENTED,
    TRUE,
    Outcomes,
    Source,
    Step,
    Watermarked,
    both,
    either,
    negated,
    null_test,
)

_MOVING = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "Exists")
"""Expressions whose value is another one in a later batch, beside those of ``_SUBQUERIES``."""
_SUBQUERIES = ("Query", "Subquery")


def steps_of_plan(node: Any) -> Step:
    """Return an analysed plan."""
    kind = kind_of(node)
    output, made = projected(node.output().mkString(", "))
    if not is_stream(node):
        return Step(kind=kind, is_stream=False, output=output)
    if kind == "Project":
        output, made = projected(node.projectList().mkString(", "))
    children = tuple(steps_of_plan(child) for child in children_of(node))
    source = None if children else _source(node, kind)
    facts = _FACTS[kind](node) if kind in _FACTS else {}
    return Step(kind=kind, is_stream=True, children=children, output=output, made=made, source=source, **facts)


def _of_filter(node: Any) -> dict[str, Any]:
    condition = node.condition()
    return {
        "text": str(condition.sql()),
        "outcomes": _outcomes(condition, node),
        "reads_marker_alone": _reads_marker_alone(condition),
        "reads": numbers_in(str(condition.toString())),
        "is_steady": _is_steady(condition),
    }


def _of_join(node: Any) -> dict[str, Any]:
    condition = node.condition()
    outcomes = TRUE if condition.isEmpty() else _outcomes(condition.get(), node)
    return {"join_type": str(node.joinType()), "outcomes": outcomes}


_FACTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    DEFINED: lambda node: {"table": int(node.id())},
    "EventTimeWatermark": lambda node: {
        "watermarked": Watermarked(str(node.eventTime().name()), str(node.delay().toString()))
    },
    "Filter": _of_filter,
    "Generate": lambda node: {"keeps_left_out": bool(node.outer())},
    "Join": _of_join,
    "MapInArrow": lambda node: {"function": str(node.functionExpr().name())},
    REPRESENTED: lambda node: {"table": int(node.cteId())},
}


def _source(node: Any, kind: str) -> Source | None:
    for each in items(node.output()):
        if each.name() == MARKER and each.metadata().contains(KEY):
            name = str(json.loads(each.metadata().json())[KEY]["source"])
            return Source(
                name, kind == "StreamingRelationV2" and bool(node.extraOptions().containsKey("includeMarkers"))
            )
    return None


def _outcomes(condition: Any, at: Any) -> Outcomes:
    kind = kind_of(condition)
    if kind in ("And", "Or"):
        one, other = (_outcomes(part, at) for part in children_of(condition))
        return both(one, other) if kind == "And" else either(one, other)
    if kind == "Not":
        return negated(_outcomes(condition.child(), at))
    if kind == "Literal":
        return {True: TRUE, False: FALSE, None: NULL}.get(condition.value(), ANY)
    if kind in ("IsNull", "IsNotNull"):
        return null_test(_is_null(condition.child(), at), wanted=kind == "IsNull")
    return NULL if _is_null(condition, at) is True else ANY


def _is_null(expression: Any, at: Any) -> bool | None:
    """Return whether a value is null in marker rows, ``None`` if that is not certain."""
    kind = kind_of(expression)
    if kind == "GetStructField":
        of_marker = _is_null(expression.child(), at) is False
        return False if of_marker and expression.extractFieldName() == "type" else None
    if kind == "AttributeReference":
        return _traced(expression, at)
    if kind == "Literal":
        return expression.value() is None
    if expression.nullIntolerant() and any(_is_null(part, at) for part in children_of(expression)):
        return True
    return None


def _traced(attribute: Any, node: Any) -> bool | None:
    """Follow a column of a node's input through projections down to the source."""
    streams = [child for child in children_of(node) if is_stream(child)]
    found = next((found for child in streams if (found := _defined(attribute, child)) is not None), None)
    if found is None:
        return None
    expression, at = found
    return expression.name() != MARKER if is_leaf(at) else _is_null(expression, at)


def _defined(attribute: Any, node: Any) -> tuple[Any, Any] | None:
    """Return what a column of a node is, in the nearest projection or the source, and that place."""
    wanted = attribute.exprId()
    if is_leaf(node):
        own = [a for a in items(node.output()) if a.exprId().equals(wanted)]
        return (own[0], node) if own and kind_of(node) != REPRESENTED else None
    if kind_of(node) == "Project":
        named = next((each for each in items(node.projectList()) if each.exprId().equals(wanted)), None)
        return None if named is None else (named.child() if kind_of(named) == "Alias" else named, node)
    streams = [child for child in children_of(node) if is_stream(child)]
    return next((found for child in streams if (found := _defined(attribute, child)) is not None), None)


def _reads_marker_alone(condition: Any) -> bool:
    """Return whether a condition, or a part of it that has to be true, reads nothing but the marker."""
    if kind_of(condition) == "And":
        return any(map(_reads_marker_alone, children_of(condition)))
    read = list(items(condition.references().toSeq()))
    return bool(read) and all(each.metadata().contains(KEY) for each in read)


def _is_steady(expression: Any) -> bool:
    """Return whether an expression has the same value for the same row in each batch."""
    kind = kind_of(expression)
    if kind in _MOVING or kind.endswith(_SUBQUERIES) or not expression.deterministic():
        return False
    return all(map(_is_steady, children_of(expression)))


# Spark's nodes and expressions.


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
