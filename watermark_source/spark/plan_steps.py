"""A query's plan as the checks of this project read it: what each operator does to a marker row.

Spark shows a plan as text (``plan_text``), for Classic its nodes as well (``classic_plan``), and in a declarative
pipeline only what the client has sent (``connect_plan``). All are read into the same steps, so that one rule counts for
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple, TypeAlias

from watermark_source.spark.plan_columns import NumberedColumn

Outcome: TypeAlias = bool | None
"""What a condition of SQL is: true, false or null."""
Outcomes: TypeAlias = frozenset[Outcome]
"""What a condition can be for a marker row, in which every column but ``marker`` is null."""
TRUE: Outcomes = frozenset({True})
FALSE: Outcomes = frozenset({False})
NULL: Outcomes = frozenset({None})
ANY: Outcomes = frozenset({True, False, None})
DEFINED, REPRESENTED = "CTERelationDef", "CTERelationRef"
"""A common table expression where it is defined, and where it is read: its rows are counted where it is defined."""

KEEP_STATE = frozenset(
    {
        "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState", "TransformWithState", "TransformWithStateInPySpark",
    }
)  # fmt: skip
"""Operators on one stream that drop rows behind the watermark."""


class Watermarked(NamedTuple):
    """Spark's watermark."""

    column: str
    delay: str


class Source(NamedTuple):
    """A source of this project."""

    name: str
    sends_markers_as_asked: bool
    """Whether the user has set ``includeMarkers``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a plan."""

    kind: str
    """Spark's name of it."""
    is_stream: bool
    children: tuple[Step, ...] = ()
    """The inputs; what is read as a batch is without its own."""
    text: str = ""
    """The condition of a filter, for messages."""
    outcomes: Outcomes = ANY
    """Of a filter, or a join: what its condition is for a marker row."""
    output: tuple[NumberedColumn, ...] = ()
    """Its columns; none of what a pipeline's client has sent."""
    made: Mapping[int, str] = field(default_factory=dict)
    """Of a projection: by their numbers, what the columns are made of that its input has not."""
    reads: frozenset[int] = frozenset()
    """The columns that the condition of a filter reads, by their numbers."""
    is_steady: bool = False
    """Whether that condition is known to have the same answer for the same row in each batch."""
    function: str = ""
    """The name of what ``mapInArrow`` calls."""
    table: int | None = None
    """The number of a common table expression, and of its places."""
    reads_marker_alone: bool = False
    """Whether a part of a filter that has to be true reads nothing but the marker, as ``data_rows`` does."""
    keeps_left_out: bool = False
    """Whether a generator returns a row where it has no element."""
    join_type: str = ""
    watermarked: Watermarked | None = None
    source: Source | None = None
    is_opaque: bool = False
    """Whether it reads what may be a source of this project, and nothing shows it."""

    @property
    def streams(self) -> Iterator[Step]:
        """The inputs that are streams."""
        return (child for child in self.children if child.is_stream)

    def all(self) -> Iterator[Step]:
        """Yield the step and all below it."""
        yield self
        for child in self.children:
            yield from child.all()

    @property
    def sources(self) -> list[Step]:
        """Where streams are read, the step itself included; those of a common table expression where it is defined."""
        return [step for step in self.all() if step.is_stream and not step.children and step.kind != REPRESENTED]


def in_place(plan: Step) -> Step:
    """Return a plan with each common table expression where it is read, and not apart."""
    return _in_place(plan, {})


def _in_place(step: Step, defined: dict[int | None, Step]) -> Step:
    """``defined``: those that come before, to which those of the step are added; none refers to a later one."""
    children = []
    for child in step.children:
        placed = _in_place(child, defined)
        if child.kind == DEFINED:
            defined[child.table] = placed
        else:
            children.append(placed)
    if step.kind == REPRESENTED and step.table in defined:
        children = [defined[step.table]]
    return replace(step, children=tuple(children))


# SQL's logic with three values, for sets of possible outcomes.


def both(one: Outcomes, other: Outcomes) -> Outcomes:
    """Return what ``one AND other`` can be."""
    return frozenset(False if False in pair else None if None in pair else True for pair in product(one, other))


def either(one: Outcomes, other: Outcomes) -> Outcomes:
    """Return what ``one OR other`` can be."""
    return negated(both(negated(one), negated(other)))


def negated(outcomes: Outcomes) -> Outcomes:
    """Return what ``NOT condition`` can be."""
    return frozenset(None if each is None else not each for each in outcomes)


def null_test(is_null: bool | None, *, wanted: bool) -> Outcomes:
    """Return what ``IS NULL``, or ``IS NOT NULL``, is for a value of which ``is_null`` states whether it is null."""
    if is_null is None:
        return frozenset({True, False})
    return TRUE if is_null is wanted else FALSE
