"""The text of an analysed plan, as Spark prints it for Classic and for Spark Connect alike.

Spark prints a node in a line, its inputs below it and further to the right. Columns have numbers, by which a column is
followed to the source, and operators of two conditions are in parentheses. A condition that the text leaves open, as a
text with parentheses of its own would, can be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.plan_columns import (
    CAST,
    WATERMARK,
    NumberedColumn,
    column_of,
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

MARKERS_ASKED = "includeMarkers"
"""The option by which a user shows to know of marker rows."""
_BEGINS, _ENDS = "== Analyzed Logical Plan ==\n", "\n== Optimized Logical Plan =="
_BRANCH = re.compile(r"(?P<depth>(?:[: ]  )*)(?P<below>[:+]- )?(?P<node>~?[A-Z])?")
_NODE = re.compile(r"(~?)(\w*) ?(.*)", re.DOTALL)
_NULL_TEST = re.compile(r"(?P<test>isnull|isnotnull)\((?P<of>.*)\)")
_COMPARISON = re.compile(r"(?P<one>.+?) (?:=|<|<=|>|>=|IN|LIKE|RLIKE) (?P<other>.+)")
_SIDES = 2
_ARITHMETIC = "+-*/%"
_CALL = re.compile(r"(?P<name>\w+)\((?P<of>.*)\)")
_NULL_OF_NULL = frozenset(
    (
        *("abs", "ceil", "ceiling", "floor", "negative", "positive", "pmod", "round", "sign", "sqrt"),
        *("concat", "contains", "endswith", "length", "lower", "ltrim", "replace", "rtrim", "startswith", "substring"),
        *("trim", "upper", "get_json_object", "regexp_extract", "regexp_replace", "split", "sha2", "md5"),
        *("date_add", "date_format", "date_sub", "date_trunc", "datediff", "dayofmonth", "dayofweek", "hour", "minute"),
        *("month", "second", "to_date", "trunc", "unix_micros", "unix_millis", "unix_seconds", "year"),
    )
)
"""Functions that are known to be null if an argument is."""
_LISTED = ("MapInArrow", "MapInPandas", "TransformWithStateInPySpark")
"""Operators that are printed with their columns, although they have inputs."""
_OUTER = re.compile(r".*, (?P<outer>true|false), (?:[^,\[]+, )?\[[^\[]*\]")
_PYTHON_SOURCE = re.compile(r"(?s)(?:\S+@\w+, )?(?P<format>[^,]+), \S+\.PythonTable@\w+, \[(?P<options>.*?)\], \[.*")


@dataclass(slots=True)
class _Line:
    depth: int
    streams: str
    kind: str
    rest: str


@dataclass(frozen=True, slots=True)
class PlanText:
    """The text of an analysed plan."""

    lines: Sequence[_Line]
    defined: Mapping[int, str]
    """What the columns of projections are, by their numbers."""
    read: dict[int, str | None]
    """Names of the columns of streams, and of joined tables: ``None`` where a marker may have a row of the table."""

    @classmethod
    def of(cls, explained: str) -> PlanText:
        """Read what Spark explains in extended form, or the tree of the analysed plan alone."""
        _, begins, analysed = explained.partition(_BEGINS)
        tree = analysed.partition(_ENDS)[0].partition("\n")[2] if begins else explained
        return cls.of_nodes(_nodes(tree))

    @classmethod
    def of_nodes(cls, nodes: Iterable[tuple[int, str]]) -> PlanText:
        """Read nodes from the sink down: how far to the right each is, and its own text."""
        lines = [_Line(depth, *_NODE.fullmatch(text).groups()) for depth, text in nodes]  # type: ignore[union-attr]
        defined: dict[int, str] = {}
        for line in lines:
            if line.kind == "Project":
                defined |= projected(line.rest)[1]
        following = [*(line.depth for line in lines[1:]), 0]
        leaves = [line for line, depth in zip(lines, following, strict=True) if depth <= line.depth and line.streams]
        columns = [column for line in leaves if line.kind != REPRESENTED for column in listed_columns(line.rest)]
        return cls(lines, defined, {column.number: column.name for column in columns})

    def steps(self, at: int = 0) -> Step:
        """Return the plan, or the part of it that begins at a line."""
        line = self.lines[at]
        children = tuple(self.steps(each) for each in self._children(at))
        # A view is printed without the sign of a stream.
        streams = any(child.is_stream for child in children) if children else bool(line.streams)
        facts = self._facts(line) if streams else {}
        if line.kind == "Join" and streams:
            finds_none = True not in facts["outcomes"]
            for name, number in (column for each in children if not each.is_stream for column in each.output):
                # A table may be joined twice, and its columns have the same numbers in both.
                self.read[number] = name if finds_none and self.read.get(number, name) is not None else None
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
        depth = self.lines[at].depth
        for number in range(at + 1, len(self.lines)):
            if self.lines[number].depth <= depth:
                return
            if self.lines[number].depth == depth + 1:
                yield number

    def _source(self, line: _Line) -> Source | None:
        found = _PYTHON_SOURCE.fullmatch(line.rest)
        names = {column.name for column in listed_columns(line.rest)}
        if found is None or not {EVENT_TIME, MARKER} <= names:
            return None
        return Source(found["format"], f"{MARKERS_ASKED}=".lower() in found["options"].lower())

    # Conditions.

    def _outcomes(self, text: str) -> Outcomes:
        if text.startswith("NOT "):
            return negated(self._outcomes(text.removeprefix("NOT ")))
        if (test := _NULL_TEST.fullmatch(text)) is not None:
            return null_test(self._is_null(test["of"]), wanted=test["test"] == "isnull")
        inner = _without_parentheses(text)
        for word, combine in ((" AND ", both), (" OR ", either)):
            parts = list(split(inner, word))
            if len(parts) == _SIDES:
                return combine(self._outcomes(parts[0]), self._outcomes(parts[1]))
        compared = _COMPARISON.fullmatch(inner)
        operands = (text,) if compared is None else (compared["one"], compared["other"])
        is_of_null = any(map(self._is_null, operands))
        return NULL if is_of_null else {"true": TRUE, "false": FALSE}.get(text, ANY)

    def _is_null(self, text: str) -> bool | None:
        """Return whether a value is null in marker rows, ``None`` if that is not certain."""
        while (within := CAST.fullmatch(text)) is not None:
            text = within["of"]
        of_marker = text.removesuffix(".type")
        if (number := column_of(of_marker)) is None:
            return True if any(map(self._is_null, _operands(text))) else None
        is_null: bool | None
        if number in self.read:
            name = self.read[number]
            is_null = None if name is None else name != MARKER
        else:
            is_null = self._is_null(self.defined[number]) if number in self.defined else None
        # Of the members of a marker, its type alone is always there.
        return is_null if of_marker == text or is_null is False else None

    def _reads_marker_alone(self, text: str) -> bool:
        parts = list(split(_without_parentheses(text), " AND "))
        if len(parts) == _SIDES:
            return any(map(self._reads_marker_alone, parts))
        numbers = numbers_in(text)
        return bool(numbers) and all(self.read.get(number) == MARKER for number in numbers)


def _nodes(tree: str) -> Iterator[tuple[int, str]]:
    depth, text = 0, ""
    for line in tree.rstrip().splitlines():
        found = _BRANCH.match(line)
        if found is not None and found["node"] and (found["below"] or not text):
            if text:
                yield depth, text
            depth, text = len(found["depth"]) // 3 + bool(found["below"]), line[found.start("node") :]
        elif text:
            # A text in an expression has lines of its own.
            text += f"\n{line}"
    if text:
        yield depth, text


def _without_parentheses(text: str) -> str:
    """Return what is in the parentheses around a whole text; nothing if there are none."""
    inner = text[1:-1]
    return inner if text == f"({inner})" and _is_balanced(inner) else ""


def _operands(text: str) -> list[str]:
    """Return the operands of a computation that is null if one of them is; none of what is not known to be."""
    called = _CALL.fullmatch(text)
    if called is not None and called["name"].lower() in _NULL_OF_NULL and _is_balanced(called["of"]):
        return list(split(called["of"], ", "))
    inner = _without_parentheses(text)
    return next((parts for sign in _ARITHMETIC if len(parts := list(split(inner, f" {sign} "))) == _SIDES), [])


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
        return projected(rest)
    if kind == "Aggregate":
        return projected(rest.rpartition("], [")[2])[0], {}
    if not children or kind in _LISTED:
        return listed_columns(rest), {}
    if kind == "Join":
        return tuple(column for child in children for column in child.output), {}
    # The last one below common table expressions is the plan that reads them.
    return children[-1 if kind == "WithCTE" else 0].output, {}
