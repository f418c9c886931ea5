"""The analysed plan of Spark Classic: the texts of its nodes, and what these alone show, asked over Py4J."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from watermark_source.spark.column_names import KEY, MARKER
from watermark_source.spark.plan_steps import Source, Step
from watermark_source.spark.plan_text import PlanText
from watermark_source.supported_spark import scala_items

_MOST_FIELDS = 2**31 - 1
_MOVING = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "Exists")
"""Expressions whose value is another one in a later batch, beside those of ``_SUBQUERIES``."""
_SUBQUERIES = ("Query", "Subquery")


def steps_of_plan(plan: Any) -> Step:
    """Return an analysed plan."""
    # Not the text of the whole tree: Spark cuts it at spark.sql.maxPlanStringLength.
    nodes = tuple(_nodes(plan))
    texts = ((depth, str(node.verboseString(_MOST_FIELDS))) for depth, node in nodes)
    return _with_nodes(PlanText.of_nodes(texts).steps(), (node for _, node in nodes))


def _nodes(node: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    yield depth, node
    for child in scala_items(node.children()):
        yield from _nodes(child, depth + 1)


def _with_nodes(step: Step, nodes: Iterator[Any]) -> Step:
    """Return a step with filters as a user writes them, and the names of sources."""
    node = next(nodes)
    children = tuple(_with_nodes(child, nodes) for child in step.children)
    if step.kind == "Filter":
        condition = node.condition()
        return replace(step, children=children, text=str(condition.sql()), is_steady=_is_steady(condition))
    return replace(step, children=children, source=None if step.source is None else _named(step.source, node))


def _named(source: Source, node: Any) -> Source:
    markers = (each for each in scala_items(node.output()) if each.name() == MARKER and each.metadata().contains(KEY))
    declared = next((json.loads(each.metadata().json())[KEY] for each in markers), {"source": source.name})
    return source._replace(name=str(declared["source"]))


def _is_steady(expression: Any) -> bool:
    """Return whether an expression has the same value for the same row in each batch."""
    kind = str(expression.getClass().getSimpleName())
    if kind in _MOVING or kind.endswith(_SUBQUERIES) or not expression.deterministic():
        return False
    return all(map(_is_steady, scala_items(expression.children())))
