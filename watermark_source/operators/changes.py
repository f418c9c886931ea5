"""Changes of keys below ``temporal_join``: of which kinds they are, and that none is lost or made.

A change that is left out ends no version of its key, and one that an operator makes begins one that no source has. So
the plan is followed from the build side down to its sources: what keeps each row is accepted, filters that leave out
whole keys, and operators of this project that keep each row; nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from watermark_source.errors import UsageError, shortened
from watermark_source.spark.accepted_operators import KEEP_EVERY_ROW, OUTER_JOINS, USERS_WORDS
from watermark_source.spark.column_names import LATE, MARKER
from watermark_source.spark.follow import quoted
from watermark_source.spark.plan_columns import column_of, is_steady, numbers_in
from watermark_source.spark.plan_steps import REPRESENTED, Step, in_place
from watermark_source.spark.source_time import SourceTime

CALLER = "temporal_join"
CHANGE_TYPE = "_change_type"
"""The column of the kind of change, as this project's sources name it."""
UPSERTS = ("insert", "update_postimage", "update", "upsert")
DELETES, IGNORED = ("delete",), ("update_preimage", "reread")
ORDERING, JOIN = "RowUnpacker", f"{CALLER}["
"""Names, in Spark's plan, of this project's operators: of the ordering, and how those of the joins begin."""
INNER = "inner"
"""Part of the name of a join that drops rows."""
_ROWS_ALIKE = frozenset({MARKER, LATE, "topic", "partition", "_change_type", "_database", "_table"})
"""Columns of a source by which a filter chooses splits, or kinds of rows, as its author intends."""


# Kinds of change, and arguments that name them.


class KindsOfChange(NamedTuple):
    """Values of the column ``change_type``, by what their rows do."""

    upserts: tuple[str, ...]
    deletes: tuple[str, ...]
    ignored: tuple[str, ...]

    @classmethod
    def of(
        cls, upserts: str | Sequence[str], deletes: str | Sequence[str], ignored: str | Sequence[str]
    ) -> KindsOfChange:
        """Read the user's arguments; raises ``UsageError`` for what is no text."""
        given = (upserts, deletes, ignored)
        return cls(*(tuple(as_list(values, name)) for name, values in zip(cls._fields, given, strict=True)))

    def check(self, build: DataFrame, change_type: str | None) -> None:
        """Raise ``UsageError`` if a value has two meanings, or values are given and there is no column of kinds."""
        if twice := sorted(kind for kind, times in Counter(chain(*self)).items() if times > 1):
            raise UsageError(
                f"{CALLER}: {', '.join(map(repr, twice))} is more than once among upserts={self.upserts}, "
                f"deletes={self.deletes} and ignored={self.ignored}; a row either begins a version, ends one or is "
                "ignored. Leave it out of all but one, as in deletes=('delete', 'update_preimage'), ignored=()"
            )
        given = zip(self._fields, self, (UPSERTS, DELETES, IGNORED), strict=True)
        unused = [f"{name}={kinds}" for name, kinds, usual in given if kinds and kinds != usual]
        if change_type is None and unused:
            raise UsageError(
                f"{CALLER}: {' and '.join(unused)}, and build has no column {CHANGE_TYPE!r} of such kinds; its columns "
                f'are {build.columns}. Name the column that has them, as in change_type="op"'
            )

    def is_version(self, change_type: str) -> Column:
        """Return whether a row begins or ends a version; of an unknown kind it ends the query."""
        kind = quoted(change_type).cast("string")
        seen = F.coalesce(F.concat(F.lit("'"), kind, F.lit("'")), F.lit("null"))
        accepted = f"upserts={self.upserts}, deletes={self.deletes} or ignored={self.ignored}"
        unknown = F.raise_error(
            F.concat(
                F.lit(f"{CALLER}: a row of build has {change_type} = "),
                seen,
                F.lit(
                    f", which is not among {accepted}. Give temporal_join the values that your stream has, as in "
                    'upserts=("c", "r", "u"), deletes="d"; a record without a value has none: coalesce it to one'
                ),
            )
        )
        known = F.when(kind.isin(*self.upserts, *self.deletes), True).when(kind.isin(*self.ignored), False)
        return known.otherwise(unknown.cast("boolean"))


def as_list(names: str | Sequence[str], argument: str) -> list[str]:
    """Return one text, or several, as a list; raises ``UsageError`` for anything else, such as a Column."""
    found = [names] if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not all(isinstance(each, str) for each in found):
        raise _no_names(argument, names)
    return list(found)


def need_names(**given: object) -> None:
    """Raise ``UsageError`` for a name that is no text, such as a Column; ``None`` is no name."""
    for argument, name in given.items():
        if name is not None and not isinstance(name, str):
            raise _no_names(argument, name)


def _no_names(argument: str, seen: object) -> UsageError:
    several = "" if argument.endswith(("_time", "change_type")) else ", or a tuple or list of texts"
    return UsageError(f'{CALLER}: {argument} = {shortened(seen)}; it must be a text{several}, as in {argument}="name"')


# The operators between a source of changes and the join.


class Lost(NamedTuple):
    """An operator that may leave out some changes of a key, or make rows that are none."""

    operator: str
    condition: str | None = None
    """The condition of a filter; ``None`` for another operator."""


class Path(NamedTuple):
    """How the rows of one source become rows of a stream."""

    source: SourceTime
    lost: Lost | None = None
    """The first operator that is not known to keep every change."""


@dataclass(frozen=True, slots=True)
class _Tracked:
    """Columns of a node, by their numbers."""

    alike: frozenset[int]
    """Columns that never change for a key."""
    read: Mapping[int, Lost]
    """Columns that filters above read, and what is lost unless they never change for a key, or are ``_ROWS_ALIKE``."""

    def moved(self, places: Mapping[int, int]) -> _Tracked:
        """Return the same columns by their numbers in another node."""
        alike = frozenset(places[each] for each in self.alike if each in places)
        return _Tracked(alike, {places.get(each, each): lost for each, lost in self.read.items()})

    def lost_at(self, source: Step) -> Lost | None:
        """Return what is lost by filters on columns of a source, if anything is."""
        known = self.alike | {column.number for column in source.output if column.name in _ROWS_ALIKE}
        return next((lost for each, lost in self.read.items() if each not in known), None)


def _source(leaf: Step, declared: SourceTime | None) -> SourceTime | None:
    """Return what a source declares, which is known from the steps above it; ``None`` of one of another project."""
    if leaf.kind == REPRESENTED:
        # A common table expression that the plan defines nowhere.
        raise _unseen(leaf)
    if declared is None and leaf.source is not None:
        raise UsageError(
            f"{CALLER}: rows of build are read from {leaf.source.name} without follow_watermark, and nothing shows "
            "whether they are all of its changes. Call it on each source first: "
            "follow_watermark(a).union(follow_watermark(b))"
        )
    return declared


def row_paths(plan: Step, constant: Sequence[str]) -> list[Path]:
    """Return the sources whose rows become rows of a stream, and what may lose some on the way.

    Args:
        plan: a stream's.
        constant: columns that never change for a key. What they are casts of does not either.

    Returns:
        A table that a row is only joined with is no source of it.

    Raises:
        UsageError: a source of this project is read without ``follow_watermark``, or the plan shows none.
    """
    alike = frozenset(column.number for column in plan.output if column.name in constant)
    if paths := list(_paths(in_place(plan), _Tracked(alike, {}))):
        return paths
    raise _unseen(plan)


def _unseen(step: Step) -> UsageError:
    return UsageError(
        f"{CALLER}: build's plan does not show from which source the rows of {step.kind} are read, and so not whether "
        "changes of a key are left out. Give the stream that follow_watermark returned, with a select or a filter on "
        "the key at most"
    )


def need_all_changes(paths: Sequence[Path], key: Sequence[str], change_type: str) -> None:
    """Refuse changes of keys of which an operator may leave some out, or to which it may add some.

    Args:
        paths: from sources of changes to the build side.
        key: the compared columns.
        change_type: the column with the kind of change.

    Raises:
        UsageError: names the operator, and what to write instead.
    """
    lossy = next((path for path in paths if path.lost is not None), None)
    if lossy is None or lossy.lost is None:
        return
    operator, condition = lossy.lost
    instead = (
        "Leave it out, or apply it to the result of the join. A select keeps every row and is accepted, with functions "
        "and pandas UDFs too"
    )
    if condition is not None:
        instead = (
            "Filter the result of the join. Or let a row that shall not count end the version of its key: "
            f'withColumn("{change_type}", expr("IF({shortened(condition)}, {change_type}, \'delete\')"))'
        )
    raise UsageError(
        f"{CALLER}: {operator} may leave out some changes of a key in build ({lossy.source.source}) and not "
        "others, or make new ones: a version that nothing ends would count on, without an error. "
        f"{instead}. Filters on {', '.join(key)}, on columns that it is a cast of, on {change_type} and on the table "
        "or topic are accepted, if their answer is the same in each batch"
    )


def _paths(step: Step, tracked: _Tracked | Lost, above: SourceTime | None = None) -> Iterator[Path]:
    below = SourceTime.of_plan(step) or above
    if not step.children:
        if (source := _source(step, above)) is not None:
            yield Path(source, tracked if isinstance(tracked, Lost) else tracked.lost_at(step))
    elif isinstance(tracked, Lost):
        for child in step.streams:
            yield from _paths(child, tracked, below)
    elif step.kind in ("Union", REPRESENTED):
        for part in step.children:
            yield from _paths(part, tracked.moved(_by_place(step, part)), below)
    elif (own := _own_operator(step)) is not None:
        packed = _input(step)
        inner = Lost("an inner temporal_join")
        yield from _paths(packed, inner if INNER in own else tracked.moved(_by_name(step, packed)), below)
    else:
        known_step = _STEPS.get(step.kind, _kept if step.kind in KEEP_EVERY_ROW else _unknown)
        kept = known_step(step, tracked)
        for child in step.streams:
            yield from _paths(child, kept, below)


# What each operator does with the columns of interest, or that it may lose rows.


def _kept(_: Step, tracked: _Tracked) -> _Tracked | Lost:
    return tracked


def _unknown(step: Step, _: _Tracked) -> _Tracked | Lost:
    return Lost(_WORDS.get(step.kind) or USERS_WORDS.get(step.kind, f"the operator {step.kind}"))


def _project(step: Step, tracked: _Tracked) -> _Tracked | Lost:
    of = {number: column_of(step.made[number]) if number in step.made else number for _, number in step.output}
    alike = tracked.alike | {found for number, found in of.items() if found is not None and number in tracked.alike}
    read = dict(tracked.read)
    for number, found in of.items():
        lost = read.pop(number, None)
        if lost is None or number in alike:
            continue
        if found is not None:
            read[found] = lost
        elif numbers_in(step.made[number]) or not is_steady(step.made[number]):
            return lost
    return _Tracked(alike, read)


def _filter(step: Step, tracked: _Tracked) -> _Tracked | Lost:
    # The filter of follow_watermark and follow_clock is the one directly above Spark's watermark.
    if step.children[0].watermarked is not None:
        return tracked
    lost = Lost(f"the filter {shortened(step.text)}", step.text)
    if not step.is_steady:
        return lost
    return replace(tracked, read={**tracked.read, **dict.fromkeys(step.reads - tracked.alike, lost)})


def _join(step: Step, tracked: _Tracked) -> _Tracked | Lost:
    streams = [child.is_stream for child in step.children]
    if all(streams):
        return Lost("a join of two streams")
    kept = OUTER_JOINS.get(step.join_type, (False, False))
    return tracked if kept[streams.index(True)] else Lost(USERS_WORDS["Join"])


_STEPS: Mapping[str, Callable[[Step, _Tracked], _Tracked | Lost]] = {
    "EventTimeWatermark": _kept,
    "Filter": _filter,
    "Join": _join,
    "Project": _project,
}
_WORDS = {
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "Generate": "explode, or another generator that makes rows of one,",
    "TransformWithStateInPySpark": "transformWithState",
}


# Operators of this project: rows are packed, given to Spark's stateful operator, and unpacked.


def _own_operator(step: Step) -> str | None:
    """Return the name of the operator of this project whose rows a step unpacks."""
    return step.function if step.function == ORDERING or step.function.startswith(JOIN) else None


def _input(step: Step) -> Step:
    """Return what an operator of this project packs the rows of; of a join, its probe side."""
    while not (step := step.children[0]).function:
        pass
    return step.children[0]


# Columns by their numbers.


def _by_place(step: Step, below: Step) -> dict[int, int]:
    # Of columns that a plan does not show nothing is known.
    same = len(step.output) == len(below.output)
    return {one.number: other.number for one, other in zip(step.output, below.output, strict=True)} if same else {}


def _by_name(step: Step, below: Step) -> dict[int, int]:
    numbers = {column.name: column.number for column in below.output}
    return {column.number: numbers[column.name] for column in step.output if column.name in numbers}
