"""Changes of keys below ``temporal_join``: of which kinds they are, and that none is lost or made.

A change that is left out ends no version of its key, and one that an operator makes begins one that no source has. So
the plan is followed from the build side down to its sources: what keeps each row is accepted, filters that leave out
whole keys, and operators of this project that keep each row; nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from watermark_source.errors import UsageError, shortened
from watermark_source.operators.followed_time import declared_by
from watermark_source.spark.accepted_operators import KEEP_EVERY_ROW, OUTER_JOINS, USERS_WORDS
from watermark_source.spark.classic_plan import children_of, is_leaf, is_stream, items, kind_of, uncast
from watermark_source.spark.column_names import LATE, MARKER
from watermark_source.spark.columns import SourceTime
from watermark_source.spark.follow import quoted
from watermark_source.supported_spark import analyzed_plan, spark_internals

CALLER = "temporal_join"
CHANGE_TYPE = "_change_type"
"""The column of the kind of change, as this project's sources name it."""
UPSERTS = ("insert", "update_postimage", "update", "upsert")
DELETES, IGNORED = ("delete",), ("update_preimage",)
ORDERING, JOIN = "RowUnpacker", f"{CALLER}["
"""Names, in Spark's plan, of this project's operators: of the ordering, and how those of the joins begin."""
INNER = "inner"
"""Part of the name of a join that drops rows."""
_ROWS_ALIKE = frozenset({MARKER, LATE, "topic", "partition", "_change_type", "_database", "_table"})
"""Columns of a source by which a filter chooses splits, or kinds of rows, as its author intends."""
_MOVING = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "Exists")
"""Expressions whose value is another one in a later batch, beside those of ``_SUBQUERIES``."""
_SUBQUERIES = ("Query", "Subquery")


# Kinds of change, and arguments that name them.


@dataclass(frozen=True, slots=True)
class KindsOfChange:
    """Values of the column ``change_type``, by what their rows do."""

    upserts: tuple[str, ...]
    deletes: tuple[str, ...]
    ignored: tuple[str, ...]

    @classmethod
    def of(
        cls, upserts: str | Sequence[str], deletes: str | Sequence[str], ignored: str | Sequence[str]
    ) -> KindsOfChange:
        """Read the user's arguments; raises ``UsageError`` for what is no text."""
        given = {"upserts": upserts, "deletes": deletes, "ignored": ignored}
        return cls(*(tuple(as_list(values, argument)) for argument, values in given.items()))

    def check(self, build: DataFrame, change_type: str | None) -> None:
        """Raise ``UsageError`` if a value has two meanings, or values are given and there is no column of kinds."""
        every = (*self.upserts, *self.deletes, *self.ignored)
        if twice := sorted({kind for kind in every if every.count(kind) > 1}):
            raise UsageError(
                f"{CALLER}: {', '.join(map(repr, twice))} is more than once among upserts={self.upserts}, "
                f"deletes={self.deletes} and ignored={self.ignored}; a row either begins a version, ends one or is "
                "ignored. Leave it out of all but one, as in deletes=('delete', 'update_preimage'), ignored=()"
            )
        usual = {"upserts": UPSERTS, "deletes": DELETES, "ignored": IGNORED}
        given = {"upserts": self.upserts, "deletes": self.deletes, "ignored": self.ignored}
        unused = [f"{name}={kinds}" for name, kinds in given.items() if kinds and kinds != usual[name]]
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


_Tables = Mapping[int, Any]
"""The definitions of common table expressions by their numbers."""


@spark_internals()
def row_paths(df: DataFrame, constant: Sequence[str]) -> list[Path]:
    """Return the sources whose rows become rows of a stream, and what may lose some on the way.

    Args:
        df: a stream.
        constant: columns that never change for a key. What they are casts of does not either.

    Returns:
        Nothing under Spark Connect, which exposes no plan. A table that a row is only joined with is no source of it.
    """
    node = analyzed_plan(df)
    if node is None:
        return []
    alike = frozenset(_number(each) for each in items(node.output()) if each.name() in constant)
    return list(_paths(node, _Tracked(alike, {}), {}))


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


def _paths(node: Any, tracked: _Tracked, tables: _Tables) -> Iterator[Path]:
    kind = kind_of(node)
    if kind == "WithCTE":
        yield from _paths(node.plan(), tracked, _with_tables(node, tables))
    elif kind == "CTERelationRef":
        table = tables[int(node.cteId())]
        yield from _paths(table, tracked.moved(_by_place(node, table)), tables)
    elif is_leaf(node):
        known = tracked.alike | {_number(each) for each in items(node.output()) if each.name() in _ROWS_ALIKE}
        lost = next((lost for each, lost in tracked.read.items() if each not in known), None)
        yield from (Path(source, lost) for source in declared_by(node)[:1])
    elif kind == "Union":
        for part in children_of(node):
            yield from _paths(part, tracked.moved(_by_place(node, part)), tables)
    elif (own := _own_operator(node)) is not None:
        if INNER in own:
            yield from _lost_in(_input(node), Lost("an inner temporal_join"), tables)
        else:
            yield from _paths(_input(node), tracked.moved(_by_name(node, _input(node))), tables)
    else:
        known_step = _STEPS.get(kind, _kept if kind in KEEP_EVERY_ROW else _unknown)
        below = known_step(node, tracked)
        if isinstance(below, Lost):
            yield from _lost_in(node, below, tables)
        else:
            for child in filter(is_stream, children_of(node)):
                yield from _paths(child, below, tables)


def _lost_in(node: Any, lost: Lost, tables: _Tables) -> Iterator[Path]:
    """Yield all sources below a node that loses rows."""
    kind = kind_of(node)
    if kind == "CTERelationRef":
        yield from _lost_in(tables[int(node.cteId())], lost, tables)
    elif is_leaf(node):
        yield from (Path(source, lost) for source in declared_by(node)[:1])
    else:
        below = [node.plan()] if kind == "WithCTE" else children_of(node)
        for child in filter(is_stream, below):
            yield from _lost_in(child, lost, _with_tables(node, tables) if kind == "WithCTE" else tables)


def _with_tables(node: Any, tables: _Tables) -> _Tables:
    return {**tables, **{int(table.id()): table for table in items(node.cteDefs())}}


# What each operator does with the columns of interest, or that it may lose rows.


def _kept(_: Any, tracked: _Tracked) -> _Tracked | Lost:
    return tracked


def _unknown(node: Any, _: _Tracked) -> _Tracked | Lost:
    kind = kind_of(node)
    return Lost(_WORDS.get(kind) or USERS_WORDS.get(kind, f"the operator {kind}"))


def _project(node: Any, tracked: _Tracked) -> _Tracked | Lost:
    named = [(each, uncast(each)) for each in items(node.projectList())]
    alike = {_number(of) for each, of in named if of is not None and _number(each) in tracked.alike}
    alike |= tracked.alike
    read = dict(tracked.read)
    for each, of in named:
        lost = read.pop(_number(each), None)
        if lost is None or _number(each) in alike:
            continue
        if of is not None:
            read[_number(of)] = lost
        elif not _is_steady(each) or not each.references().isEmpty():
            return lost
    return _Tracked(frozenset(alike), read)


def _filter(node: Any, tracked: _Tracked) -> _Tracked | Lost:
    # The filter of follow_watermark and follow_clock is the one directly above Spark's watermark.
    if kind_of(node.child()) == "EventTimeWatermark":
        return tracked
    condition = node.condition()
    lost = Lost(f"the filter {shortened(condition.sql())}", condition.sql())
    if not _is_steady(condition):
        return lost
    read = {_number(each) for each in items(condition.references().toSeq())} - tracked.alike
    return replace(tracked, read={**tracked.read, **dict.fromkeys(read, lost)})


def _join(node: Any, tracked: _Tracked) -> _Tracked | Lost:
    streams = [is_stream(child) for child in children_of(node)]
    if all(streams):
        return Lost("a join of two streams")
    kept = OUTER_JOINS.get(str(node.joinType()), (False, False))
    return tracked if kept[streams.index(True)] else Lost(USERS_WORDS["Join"])


_STEPS: Mapping[str, Callable[[Any, _Tracked], _Tracked | Lost]] = {
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


def _is_steady(expression: Any) -> bool:
    """Return whether an expression has the same value for the same row in each batch."""
    kind = kind_of(expression)
    if kind in _MOVING or kind.endswith(_SUBQUERIES) or not expression.deterministic():
        return False
    return all(map(_is_steady, children_of(expression)))


# Operators of this project: rows are packed, given to Spark's stateful operator, and unpacked.


def _own_operator(node: Any) -> str | None:
    """Return the name of the operator of this project whose rows a node unpacks."""
    name = str(node.functionExpr().name()) if kind_of(node) == "MapInArrow" else ""
    return name if name == ORDERING or name.startswith(JOIN) else None


def _input(node: Any) -> Any:
    """Return what an operator of this project packs the rows of; of a join, its probe side."""
    while kind_of(node := children_of(node)[0]) != "MapInArrow":
        pass
    return children_of(node)[0]


# Columns by their numbers.


def _number(expression: Any) -> int:
    """Return the number by which Spark distinguishes columns."""
    return int(expression.exprId().id())


def _by_place(node: Any, below: Any) -> dict[int, int]:
    pairs = zip(items(node.output()), items(below.output()), strict=True)
    return {_number(one): _number(other) for one, other in pairs}


def _by_name(node: Any, below: Any) -> dict[int, int]:
    numbers = {str(each.name()): _number(each) for each in items(below.output())}
    return {_number(each): numbers[name] for each in items(node.output()) if (name := str(each.name())) in numbers}
