"""The plan of Spark Connect: the text of the analysed plan, for which the server is asked.

Spark prints a node in a line, its inputs below it and further to the right. Columns have numbers, by which a column is
followed to the source, and operators of two conditions are in parentheses. A condition that the text leaves open, as a
text with parentheses of its own would, can be anything.

In a function of a declarative pipeline the server answers no question about a plan. There only what the client has sent
is known: which operators, and of a source its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.connect.plan import LogicalPlan

from watermark_source.installation import format_packages
from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.plan_columns import (
    CAST,
    WATERMARK,
    NumberedColumn,
    column_of,
    is_column,
    is_steady,
    listed_columns,
    numbers_in,
    projected,
    split,
    without_numbers,
)
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

_ASKED = "includeMarkers"
_MOST_FIELDS = "spark.sql.debug.maxToStringFields"
"""How many columns of a node Spark prints; 25 unless it is set."""
_ALL = str(2**31 - 1)


def steps_of_connect(df: DataFrame) -> Step:
    """Return the plan of a DataFrame of Spark Connect, as the server has analysed it."""
    return PlanText.of(_explained(df)).steps()


def _explained(df: DataFrame) -> str:
    explained: Callable[..., str] = cast(Any, df)._explain_string  # noqa: SLF001 - ``explain`` prints it
    text = explained(extended=True)
    if " more fields" not in text:
        return text
    conf: Any = df.sparkSession.conf
    before = conf.get(_MOST_FIELDS)
    conf.set(_MOST_FIELDS, _ALL)
    try:
        return explained(extended=True)
    finally:
        conf.set(_MOST_FIELDS, before)


_BEGINS, _ENDS = "== Analyzed Logical Plan ==\n", "\n== Optimized Logical Plan =="
_NODE = re.compile(r"(?P<depth>(?:[: ]  )*)(?P<below>[:+]- )?(?P<streams>~?)(?P<kind>[A-Z]\w*)\b ?(?P<rest>.*)")
_NULL_TEST = re.compile(r"(?P<test>isnull|isnotnull)\((?P<of>.*)\)")
_COMPARISON = re.compile(r"(?P<one>.+?) (?:=|<|<=|>|>=|IN|LIKE|RLIKE) (?P<other>.+)")
_SIDES = 2
_LISTED = ("Aggregate", "MapInArrow", "MapInPandas", "TransformWithStateInPySpark")
"""Operators that are printed with their columns, although they have inputs."""
_OUTER = re.compile(r".*, (?P<outer>true|false), (?:[^,\[]+, )?\[[^\[]*\]")
_PYTHON_SOURCE = re.compile(r"(?:\S+@\w+, )?(?P<format>[^,]+), \S+\.PythonTable@\w+, \[(?P<options>.*?)\], \[.*")


@dataclass(slots=True)
class _Line:
    depth: int
    kind: str
    streams: bool
    rest: str


@dataclass(frozen=True, slots=True)
class PlanText:
    """The text of an analysed plan."""

    lines: Sequence[_Line]
    defined: Mapping[int, str]
    """What the columns of projections are, by their numbers."""
    read: Mapping[int, str]
    """Names of the columns of sources."""

    @classmethod
    def of(cls, explained: str) -> PlanText:
        """Read what Spark explains in extended form, or the tree of the analysed plan alone."""
        tree = explained
        if _BEGINS in explained:
            tree = explained.partition(_BEGINS)[2].partition(_ENDS)[0].partition("\n")[2]
        lines = list(_lines(tree))
        defined: dict[int, str] = {}
        for line in lines:
            if line.kind == "Project":
                defined |= projected(_unlisted(line.rest))[1]
        leaves = [line for line, below in zip(lines, [*lines[1:], None], strict=True) if _is_leaf(line, below)]
        columns = [column for line in leaves if line.kind != REPRESENTED for column in listed_columns(line.rest)]
        return cls(lines, defined, {column.number: column.name for column in columns})

    def steps(self) -> Step:
        """Return the plan."""
        return self._step(0)

    def _step(self, at: int) -> Step:
        line = self.lines[at]
        children = tuple(self._step(each) for each in self._children(at))
        # A view is printed without the sign of a stream.
        streams = any(child.is_stream for child in children) if children else line.streams
        facts = self._facts(line) if streams else {}
        output, made = columns_of(line.kind, line.rest, children)
        return Step(kind=line.kind, is_stream=streams, children=children, output=output, made=made, **facts)

    def _facts(self, line: _Line) -> dict[str, Any]:
        if line.kind == "Filter":
            return {
                "text": without_numbers(line.rest),
                "outcomes": self._outcomes(line.rest),
                "reads_marker_alone": self._reads_marker_alone(line.rest),
                "reads": numbers_in(line.rest),
                "is_steady": is_steady(line.rest),
            }
        if line.kind == "Join":
            join_type, _, condition = line.rest.partition(", ")
            return {"join_type": join_type, "outcomes": self._outcomes(condition) if condition else TRUE}
        if line.kind == "Generate" and (outer := _OUTER.fullmatch(line.rest)) is not None:
            return {"keeps_left_out": outer["outer"] == "true"}
        if line.kind == "EventTimeWatermark" and (found := WATERMARK.fullmatch(line.rest)) is not None:
            return {"watermarked": Watermarked(found["name"], found["delay"])}
        if line.kind == "MapInArrow":
            return {"function": line.rest.partition("(")[0]}
        is_table = line.kind in (DEFINED, REPRESENTED)
        return {"table": int(line.rest.partition(",")[0])} if is_table else {"source": self._source(line)}

    def _children(self, at: int) -> Iterator[int]:
        """Yield the numbers of the lines of a node's inputs; plans within its expressions are further to the right."""
        above = [self.lines[at].depth]
        for number in range(at + 1, len(self.lines)):
            depth = self.lines[number].depth
            if depth <= above[0]:
                return
            while depth <= above[-1]:
                above.pop()
            if len(above) == 1:
                yield number
            above.append(depth)

    def _source(self, line: _Line) -> Source | None:
        found = _PYTHON_SOURCE.fullmatch(line.rest)
        names = {column.name for column in listed_columns(line.rest)}
        if found is None or not {EVENT_TIME, MARKER} <= names:
            return None
        return Source(found["format"], f"{_ASKED}=".lower() in found["options"].lower())

    # Conditions.

    def _outcomes(self, text: str) -> Outcomes:
        if text.startswith("NOT "):
            return negated(self._outcomes(text.removeprefix("NOT ")))
        if (test := _NULL_TEST.fullmatch(text)) is not None:
            return null_test(self._is_null(test["of"]), wanted=test["test"] == "isnull")
        inner = _without_parentheses(text)
        if inner is None:
            return {"true": TRUE, "false": FALSE}.get(text, ANY)
        for word, combine in ((" AND ", both), (" OR ", either)):
            parts = list(split(inner, word))
            if len(parts) == _SIDES:
                return combine(self._outcomes(parts[0]), self._outcomes(parts[1]))
        compared = _COMPARISON.fullmatch(inner)
        is_of_null = compared is not None and any(map(self._is_null, (compared["one"], compared["other"])))
        return NULL if is_of_null else ANY

    def _is_null(self, text: str) -> bool | None:
        """Return whether a value is null in marker rows, ``None`` if that is not certain."""
        while (within := CAST.fullmatch(text)) is not None:
            text = within["of"]
        of_marker = text.removesuffix(".type")
        if not is_column(of_marker) or (number := column_of(of_marker)) is None:
            return None
        is_null: bool | None
        if number in self.read:
            is_null = self.read[number] != MARKER
        else:
            is_null = self._is_null(self.defined[number]) if number in self.defined else None
        # Of the members of a marker, its type alone is always there.
        return is_null if of_marker == text or is_null is False else None

    def _reads_marker_alone(self, text: str) -> bool:
        inner = _without_parentheses(text)
        parts = [] if inner is None else list(split(inner, " AND "))
        if len(parts) == _SIDES:
            return any(map(self._reads_marker_alone, parts))
        numbers = numbers_in(text)
        return bool(numbers) and all(self.read.get(number) == MARKER for number in numbers)


def _lines(tree: str) -> Iterator[_Line]:
    last: _Line | None = None
    for text in tree.rstrip().splitlines():
        found = _NODE.fullmatch(text)
        if found is not None and (last is None or found["below"]):
            if last is not None:
                yield last
            depth = len(found["depth"]) // 3 + bool(found["below"])
            last = _Line(depth, found["kind"], bool(found["streams"]), found["rest"])
        elif last is not None:
            # A text in an expression has lines of its own.
            last.rest += f"\n{text}"
    if last is not None:
        yield last


def _is_leaf(line: _Line, below: _Line | None) -> bool:
    return below is None or below.depth <= line.depth


def _without_parentheses(text: str) -> str | None:
    """Return what is in the parentheses around a whole text, ``None`` if there are none."""
    if not (text.startswith("(") and text.endswith(")")):
        return None
    inner = text[1:-1]
    return inner if _is_balanced(inner) else None


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


def columns_of(kind: str, rest: str, children: Sequence[Step]) -> tuple[tuple[NumberedColumn, ...], Mapping[int, str]]:
    """Return the columns of an operator by what Spark prints of it, and what those are made of that it makes."""
    if kind == "Project":
        return projected(_unlisted(rest))
    if not children or kind in _LISTED:
        return listed_columns(rest), {}
    if kind == "Join":
        return tuple(column for child in children for column in child.output), {}
    # The last one below common table expressions is the plan that reads them.
    return children[-1 if kind == "WithCTE" else 0].output, {}


def _unlisted(rest: str) -> str:
    return rest.removeprefix("[").removesuffix("]")


# What the client has sent.


_OF_SPARK = frozenset({"csv", "delta", "json", "kafka", "orc", "parquet", "rate", "rate-micro-batch", "socket", "text"})
"""Formats that are known, without a look at others, not to be of this project."""


def steps_sent(df: DataFrame) -> Step:
    """Return the plan of a DataFrame in a function of a pipeline, as the client sends it."""
    return _sent(cast(Any, df)._plan)  # noqa: SLF001 - Spark shows a client's plan nowhere else


def _sent(plan: LogicalPlan) -> Step:
    kind = type(plan).__name__
    # The first input of a join has two names.
    parts = [part for name, part in vars(plan).items() if isinstance(part, LogicalPlan) and name != "left"]
    children = tuple(map(_sent, parts))
    if not children:
        return _read_by_client(plan, kind)
    facts: dict[str, Any] = {}
    if kind == "Filter":
        condition = str(plan.filter)  # type: ignore[attr-defined]
        facts = {"text": condition, "reads_marker_alone": re.search(rf"\b{MARKER}\b", condition) is not None}
    elif kind == "WithWatermark":
        facts = {"watermarked": Watermarked(plan._event_time, plan._delay_threshold)}  # type: ignore[attr-defined] # noqa: SLF001
    return Step(kind=kind, is_stream=any(child.is_stream for child in children), children=children, **facts)


def _read_by_client(plan: Any, kind: str) -> Step:
    name = getattr(plan, "_format", None)
    streams = bool(getattr(plan, "_is_streaming", False)) or kind == "SQL"
    if not streams or name in _OF_SPARK:
        return Step(kind=kind, is_stream=streams)
    if name is None or not _is_own_format(name):
        return Step(kind=kind, is_stream=True, is_opaque=True)
    asked = _ASKED.lower() in {option.lower() for option in plan._options or ()}  # noqa: SLF001 - as above
    return Step(kind=kind, is_stream=True, source=Source(name, asked))


def _is_own_format(name: str) -> bool:
    from watermark_source.spark.data_source import AlignedDataSource  # noqa: PLC0415 - pipelines alone need it

    found = (getattr(import_module(package), "DefaultSource", None) for package in format_packages())
    return any(isinstance(each, type) and issubclass(each, AlignedDataSource) and each.name() == name for each in found)


def may_have_times_of_its_own(df: DataFrame, name: str) -> bool:
    """Return whether a column of a pipeline's stream may be another than the source's event time."""
    return name.lower() != EVENT_TIME or _makes_column(cast(Any, df)._plan, name)  # noqa: SLF001 - as above


def _makes_column(plan: Any, name: str) -> bool:
    made = [*getattr(plan, "_columnNames", ()), *(str(column) for column in getattr(plan, "_columns", ()))]
    if any(re.search(rf"(^| AS ){re.escape(name)}\b", each, re.IGNORECASE) for each in made):
        return True
    return any(_makes_column(part, name) for part in vars(plan).values() if isinstance(part, LogicalPlan))
