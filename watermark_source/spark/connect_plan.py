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

_ASKED = "includeMarkers"
_MOST_FIELDS = "spark.sql.debug.maxToStringFields"
"""How many columns of a node Spark prints; 25 unless it is set."""
_ALL = str(2**31 - 1)


def steps_of_connect(df: DataFrame) -> Step:
    """Return the plan of a DataFrame of Spark Connect, as the server has analysed it."""
    return analysed_text(df).steps()


def analysed_text(df: DataFrame) -> PlanText:
    """Return the analysed plan of a DataFrame of Spark Connect."""
    return PlanText.of(_explained(df))


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
_NUMBERED = r"(?P<name>.+)#(?P<number>\d+)L?(?:-T\d+ms)?"
_COLUMN = re.compile(_NUMBERED)
_ALIAS = re.compile(rf"(?P<of>.*) AS {_NUMBERED}")
_CAST = re.compile(r"cast\((?P<of>.*) as \w+\)")
_MOVED = re.compile(r"(?P<of>.*#\d+) [+-] INTERVAL '[^']*' [A-Z ]+")
"""A time moved by an interval that is the same for all rows."""
_NULL_TEST = re.compile(r"(?P<test>isnull|isnotnull)\((?P<of>.*)\)")
_COMPARISON = re.compile(r"(?P<one>.+?) (?:=|<|<=|>|>=|IN|LIKE|RLIKE) (?P<other>.+)")
_SIDES = 2
_OUTER = re.compile(r".*, (?P<outer>true|false), (?:[^,\[]+, )?\[[^\[]*\]")
_WATERMARK = re.compile(rf"\S+, {_NUMBERED}: timestamp, (?P<delay>.*)")
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
        projected = [entry for line in lines if line.kind == "Project" for entry in _entries(line.rest)]
        aliases = [found for entry in projected if (found := _ALIAS.fullmatch(entry))]
        leaves = [line for line, below in zip(lines, [*lines[1:], None], strict=True) if _is_leaf(line, below)]
        columns = [found for line in leaves if line.kind != REPRESENTED for found in _columns(line.rest)]
        return cls(
            lines,
            {int(found["number"]): found["of"] for found in aliases},
            {int(found["number"]): found["name"] for found in columns},
        )

    def steps(self) -> Step:
        """Return the plan."""
        return self._step(0)

    def times_of_its_own(self, name: str, own: Sequence[str]) -> bool:
        """As ``classic_plan.times_of_its_own``."""
        column = next((found for line in self.lines for found in _columns(line.rest, name)), None)
        while column is not None:
            number = int(column["number"])
            if number in self.read:
                return self.read[number] not in own
            if number not in self.defined:
                return False
            text = self.defined[number]
            while (within := _CAST.fullmatch(text) or _MOVED.fullmatch(text)) is not None:
                text = within["of"]
            column = _COLUMN.fullmatch(text) if _is_column(text) else None
        return bool(self.lines)

    def _step(self, at: int) -> Step:
        line = self.lines[at]
        children = tuple(self._step(each) for each in self._children(at))
        if not children:
            return Step(kind=line.kind, is_stream=line.streams, source=self._source(line) if line.streams else None)
        # A view is printed without the sign of a stream.
        streams = any(child.is_stream for child in children)
        return Step(kind=line.kind, is_stream=streams, children=children, **self._facts(line) if streams else {})

    def _facts(self, line: _Line) -> dict[str, Any]:
        if line.kind == "Filter":
            return {
                "text": line.rest,
                "outcomes": self._outcomes(line.rest),
                "reads_marker_alone": self._reads_marker_alone(line.rest),
            }
        if line.kind == "Join":
            join_type, _, condition = line.rest.partition(", ")
            return {"join_type": join_type, "outcomes": self._outcomes(condition) if condition else TRUE}
        if line.kind == "Generate":
            outer = _OUTER.fullmatch(line.rest)
            return {"keeps_left_out": outer is not None and outer["outer"] == "true"}
        if line.kind == "EventTimeWatermark" and (found := _WATERMARK.fullmatch(line.rest)) is not None:
            return {"watermarked": Watermarked(found["name"], found["delay"])}
        return {}

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
        names = {column["name"] for column in _columns(line.rest)}
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
            parts = list(_split(inner, word))
            if len(parts) == _SIDES:
                return combine(self._outcomes(parts[0]), self._outcomes(parts[1]))
        compared = _COMPARISON.fullmatch(inner)
        is_of_null = compared is not None and any(map(self._is_null, (compared["one"], compared["other"])))
        return NULL if is_of_null else ANY

    def _is_null(self, text: str) -> bool | None:
        """Return whether a value is null in marker rows, ``None`` if that is not certain."""
        while (within := _CAST.fullmatch(text)) is not None:
            text = within["of"]
        of_marker = text.removesuffix(".type")
        if not _is_column(of_marker) or (column := _COLUMN.fullmatch(of_marker)) is None:
            return None
        number = int(column["number"])
        is_null: bool | None
        if number in self.read:
            is_null = self.read[number] != MARKER
        else:
            is_null = self._is_null(self.defined[number]) if number in self.defined else None
        # Of the members of a marker, its type alone is always there.
        return is_null if of_marker == text or is_null is False else None

    def _reads_marker_alone(self, text: str) -> bool:
        inner = _without_parentheses(text)
        parts = [] if inner is None else list(_split(inner, " AND "))
        if len(parts) == _SIDES:
            return any(map(self._reads_marker_alone, parts))
        numbers = {int(number) for number in re.findall(r"#(\d+)", text)}
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


def _entries(rest: str) -> Iterator[str]:
    """Yield the entries of a list in brackets."""
    return _split(rest.removeprefix("[").removesuffix("]"), ", ")


def _columns(rest: str, name: str | None = None) -> Iterator[re.Match[str]]:
    """Yield the columns, perhaps of one name, in the last list of a node that has nothing but columns."""
    for listed in reversed(re.findall(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", rest)):
        found = [_ALIAS.fullmatch(entry) or _COLUMN.fullmatch(entry) for entry in _split(listed, ", ")]
        columns = [each for each in found if each is not None]
        if columns and len(columns) == len(found):
            yield from (each for each in columns if name is None or each["name"] == name)
            return


def _is_column(text: str) -> bool:
    return re.fullmatch(r"[^()]+#\d+L?(?:-T\d+ms)?", text) is not None


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


def _split(text: str, between: str) -> Iterator[str]:
    """Yield the parts of a text between a separator that is in no parentheses or brackets."""
    depth = begin = 0
    for at, character in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth == 0 and text.startswith(between, at):
            yield text[begin:at]
            begin = at + len(between)
    yield text[begin:]


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
