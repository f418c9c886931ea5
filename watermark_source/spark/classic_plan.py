"""The analysed plan of Spark Classic: its text, and what the nodes alone show, which are asked over Py4J."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from watermark_source.errors import UsageError
from watermark_source.spark.column_names import KEY, MARKER
from watermark_source.spark.plan_steps import Source, Step
from watermark_source.spark.plan_text import PlanText
from watermark_source.supported_spark import scala_items

_MOST_FIELDS = 2**31 - 1
_MOVING = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "Exists")
"""Expressions whose value is another one in a later batch, beside those of ``_SUBQUERIES``."""
_SUBQUERIES = ("Query", "Subquery")


def steps_of_plan(node: Any) -> Step:
    """Return an analysed plan."""
    verbose, suffix, numbers, columns = True, False, False, False
    tree = node.treeString(verbose, suffix, _MOST_FIELDS, numbers, columns)
    return _with_nodes(PlanText.of(tree).steps(), node)


def _with_nodes(step: Step, node: Any) -> Step:
    """Return a step with filters as a user writes them, and the names of sources."""
    nodes = tuple(scala_items(node.children()))
    if len(nodes) != len(step.children):
        raise UsageError(
            f"the text of the query's plan has {len(step.children)} inputs for {step.kind}, and {len(nodes)} were "
            "expected: write no text in the query that has a line such as those of explain()"
        )
    children = tuple(map(_with_nodes, step.children, nodes))
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
