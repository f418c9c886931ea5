"""The analysed plan of Spark Classic, whose nodes are asked over Py4J."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from watermark_source.spark.column_names import KEY, MARKER
from watermark_source.spark.plan_steps import (
    ANY,
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

_MOVED = ("TimeAdd", "TimestampAddInterval")
"""Names, in Spark's releases, of a timestamp that is moved by an interval."""


def steps_of_plan(node: Any) -> Step:
    """Return an analysed plan."""
    kind = kind_of(node)
    if not is_stream(node):
        return Step(kind=kind, is_stream=False)
    children = tuple(steps_of_plan(child) for child in children_of(node))
    if not children:
        return Step(kind=kind, is_stream=True, source=_source(node, kind))
    return Step(kind=kind, is_stream=True, children=children, **_facts(node, kind))


def _facts(node: Any, kind: str) -> dict[str, Any]:
    if kind == "Filter":
        condition = node.condition()
        return {
            "text": str(condition.sql()),
            "outcomes": _outcomes(condition, node),
            "reads_marker_alone": _reads_marker_alone(condition),
        }
    if kind == "Join":
        condition = node.condition()
        outcomes = TRUE if condition.isEmpty() else _outcomes(condition.get(), node)
        return {"join_type": str(node.joinType()), "outcomes": outcomes}
    if kind == "Generate":
        return {"keeps_left_out": bool(node.outer())}
    if kind == "EventTimeWatermark":
        return {"watermarked": Watermarked(str(node.eventTime().name()), str(node.delay().toString()))}
    return {}


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


def times_of_its_own(node: Any, name: str, own: Sequence[str]) -> bool:
    """Return whether a column of a plan is certainly neither in ``own`` of the source, nor one of these moved or cast.

    False where the plan cannot be followed.
    """
    column = next((each for each in items(node.output()) if each.name() == name), None)
    while column is not None:
        defined = _defined(column, node)
        if defined is None:
            return False
        expression, at = defined
        if is_leaf(at):
            return expression.name() not in own
        column, node = uncast(_unmoved(expression)), at.child()
    return True


def _unmoved(named: Any) -> Any:
    """Return the time that an expression moves by an interval that is the same for all rows, or the expression."""
    while kind_of(named) in (*_MOVED, "Alias", "Cast", "DatetimeSub"):
        if kind_of(named) in _MOVED:
            time, interval = children_of(named)
            if not interval.foldable():
                return named
            named = time
        else:
            named = named.child()
    return named


# Spark's nodes and expressions.


def uncast(named: Any) -> Any:
    """Return the column that an expression is, or is a cast of."""
    while kind_of(named) in ("Alias", "Cast"):
        named = named.child()
    return named if kind_of(named) == "AttributeReference" else None


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
